// Package e2e holds the tests on real processes: nodes that share a limit, die
// and come back, and the etcd under them that goes away.
//
// They run in real time, and take minutes: what they show is that the processes themselves, their sockets, signals, files
// and leases in etcd behave, and none of these has a virtual clock. The same faults in virtual time are in test/sim.
//
// Each test has a loopback address of its own. A test that mostly waits for leases and timeouts calls
// t.Parallel: several of these run at once, after all others. A test that measures how soon something
// happens, or that keeps the processors busy, does not. A test that takes long, and shows a rarer fault, calls
// testform.NotInBrief, and is left to RUN_ALL_TESTS=1.
package e2e
