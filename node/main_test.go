package node

// The tests of this package run nodes within the test's process, on free ports of loopback, each with an embedded etcd of
// its own or as members of one cluster, and all in real time, because etcd has no other clock:
//
//	info, stop, ended := start(t, testOptions(t)) // returns when the node is ready
//
// start (harness_test.go) runs Run. info has the addresses, stop ends the node, and ended is the error of Run. testOptions
// (assemble_test.go) has free ports and a directory of the test. Tests with an etcd of several nodes start it by etcdAt
// (offline_test.go), and those with certificates add them by withTLS (metrics_page_test.go). At the end of the test its nodes are stopped and
// awaited, and the directories removed. TestMain fails if a goroutine is left then.

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// Tests wait for nearly all of their time, so that more of them run at once than there are processors. The flag -parallel says otherwise.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	// lumberjack has one goroutine per file, which it never ends.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}
