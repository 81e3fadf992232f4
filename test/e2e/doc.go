// Package e2e holds the tests on real processes: nodes that share a limit, die
// and come back, and the etcd under them that goes away.
package e2e
