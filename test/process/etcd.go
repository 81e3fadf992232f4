package process

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/weirlimit/weir/cluster/etcd"
)

const etcdVariable = "WEIR_TEST_ETCD" // its value is "host:port directory"

// Etcd is an etcd in a process of its own.
type Etcd struct {
	Endpoint string
	t        testing.TB
	dir      string
	cmd      *exec.Cmd
}

// StartEtcd starts an etcd on a free port. It is killed when the test ends.
func StartEtcd(t testing.TB) *Etcd {
	t.Helper()
	return StartEtcdOn(t, Host(t))
}

// StartEtcdOn is StartEtcd on another address than loopback's.
func StartEtcdOn(t testing.TB, host string) *Etcd {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	e := &Etcd{Endpoint: l.Addr().String(), t: t, dir: t.TempDir()}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	e.Start()
	t.Cleanup(e.Kill)
	return e
}

// Start starts it again, with its data and on its port, after Kill.
func (e *Etcd) Start() {
	e.t.Helper()
	e.cmd = exec.Command(os.Args[0])
	e.cmd.Env = append(os.Environ(), etcdVariable+"="+e.Endpoint+" "+e.dir)
	e.cmd.Stderr = os.Stderr
	stdout, err := e.cmd.StdoutPipe()
	if err != nil {
		e.t.Fatal(err)
	}
	if err := e.cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		e.t.Fatalf("etcd on %s did not start: %q, %v", e.Endpoint, line, err)
	}
}

// Wipe ends it as a crash would, and starts it again without its data.
func (e *Etcd) Wipe() {
	e.t.Helper()
	e.Kill()
	if err := os.RemoveAll(e.dir); err != nil {
		e.t.Fatal(err)
	}
	e.Start()
}

// Kill ends it as a crash would.
func (e *Etcd) Kill() {
	_ = e.cmd.Process.Kill()
	_ = e.cmd.Wait()
}

func runEtcd(spec string) int {
	listen, dir, _ := strings.Cut(spec, " ")
	s, err := etcd.StartServer(context.Background(), etcd.ServerConfig{Listen: listen, Dir: dir})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("ready")
	fmt.Fprintln(os.Stderr, <-s.Err()) // until killed
	return 1
}
