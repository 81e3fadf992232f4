// Package peers measures a check of Weir's counters beside other Go libraries that
// limit in process, with the same keys in the same run. It is a module of its own so
// that nobody who builds Weir depends on them.
//
//	cd test/bench/peers && go test -run '^$' -bench . -cpu 1,2
package peers
