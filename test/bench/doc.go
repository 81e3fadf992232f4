// Package bench measures what a check costs in server processes, compared with a baseline: a bare gRPC
// server of the same messages, in the same run.
//
//	go test ./test/bench -run '^$' -bench . -benchtime 5s
package bench
