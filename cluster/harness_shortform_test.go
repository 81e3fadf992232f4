package cluster

import "os"

// allTests reports whether no test is to be cut short, as in CI.
func allTests() bool { return os.Getenv("RUN_ALL_TESTS") != "" }
