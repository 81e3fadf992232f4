// Package bench measures what a check costs in server processes, compared with a baseline: a bare gRPC
// server of the same messages, in the same run.
//
//	go test ./test/bench -run '^$' -bench . -benchtime 5s
//
// It measures real time, as latency and throughput of processes are what is asked for; without -bench it runs nothing.
package bench
