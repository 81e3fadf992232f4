package process

import (
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// guardPort is bound on the loopback address of each test as long as the test process runs, so that no other
// process takes that address. It lies above the ports that Linux gives to port 0.
const guardPort = "61999"

// hosts has the loopback address of each test, by the test's name, and what guards it.
var hosts struct {
	sync.Mutex
	byTest map[string]net.Listener
}

// Host returns the loopback address of the test, which its subtests share. Other tests, also those of other
// processes, have others: none takes the port of a node that was killed and is to come back. And since connections
// come from 127.0.0.1, a caller that dials such a port meanwhile is not connected with itself.
func Host(t testing.TB) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		return "127.0.0.1" // the rest of its network is not there
	}
	name, _, _ := strings.Cut(t.Name(), "/")
	hosts.Lock()
	defer hosts.Unlock()
	guard := hosts.byTest[name]
	for try := 0; guard == nil; try++ {
		host := net.IPv4(127, byte(64+rand.IntN(64)), byte(rand.IntN(256)), byte(rand.IntN(256)))
		l, err := net.Listen("tcp", net.JoinHostPort(host.String(), guardPort))
		if err == nil {
			guard = l
		} else if try == 100 {
			t.Fatalf("no loopback address is free: %v", err)
		}
	}
	if hosts.byTest == nil {
		hosts.byTest = make(map[string]net.Listener)
	}
	hosts.byTest[name] = guard
	host, _, err := net.SplitHostPort(guard.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return host
}
