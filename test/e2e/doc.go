// Package e2e holds the tests on real processes: nodes that share a limit, die
// and come back, and the etcd under them that goes away.
//
// Each test has a loopback address of its own. A test that mostly waits for leases and timeouts calls
// t.Parallel: several of these run at once, after all others. A test that measures how soon something
// happens, or that keeps the processors busy, does not.
package e2e
