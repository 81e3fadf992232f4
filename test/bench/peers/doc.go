// Package peers measures a check of Weir's counters, and of other Go libraries that limit in process, with
// the same keys in the same run. It is a module of its own so that Weir does not depend on them.
//
//	cd test/bench/peers && go test -run '^$' -bench . -cpu 1,2
package peers
