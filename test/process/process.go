// Package process runs real weir processes for tests: it builds the binary once,
// starts and kills nodes, and runs an etcd in a process of its own.
package process

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/internal/testform"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Patience is how long a test waits for what must happen, but need not be quick: a test that has hung ends after it. A machine that
// is busy with something else takes many times as long as one that is not. What is promised within a time has that time as its
// deadline instead.
const Patience = time.Minute

const (
	lookEvery    = 20 * time.Millisecond
	listPatience = 5 * time.Second // of Node.Nodes, which is asked again
)

// built is the binary of this test process.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// Binary builds weir once per test process, with the race detector if the test
// has it, and returns the binary's path.
func Binary(t testing.TB) string {
	t.Helper()
	built.once.Do(func() {
		//nolint:usetesting // it outlives the test that happens to be the first
		if built.dir, built.err = os.MkdirTemp("", "weir-test-"); built.err != nil {
			return
		}
		// go run keeps what it has linked, and go build does not: so several packages of tests have it linked once.
		args := []string{"run", "-exec", "cp"}
		if testform.RaceEnabled {
			args = append(args, "-race")
		}
		_, here, _, _ := runtime.Caller(0)
		cmd := exec.Command("go", append(args, "./cmd/weir", built.dir+"/weir")...)
		cmd.Dir = filepath.Join(filepath.Dir(here), "..", "..")
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("build weir: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.dir + "/weir"
}

// Node is a running weir process.
type Node struct {
	ID, GRPC, HTTP, Etcd string
	Admin                string // empty without --admin
	Client               *client.Node

	t    testing.TB
	how  How
	cmd  *exec.Cmd
	args []string
	data string // directory
	log  *logFile
	done chan struct{} // closed when the process has ended
	err  error         // how, once done is closed
}

// How says how a process is run. The zero value is as a user would.
type How struct {
	Binary string          // instead of the one that Binary returns
	Prefix []string        // a command that runs the one behind it, such as "ip netns exec NAME"
	Env    []string        // further variables, as NAME=value
	Host   string          // the address that it listens on, instead of the one of this test
	Client []client.Option // how Node.Client asks it; its calls wait for Patience
}

// Start starts a node with these arguments to serve, on free ports unless they say
// otherwise, and waits until it serves. It is killed when the test ends, and its
// log is shown if the test has failed.
func Start(t testing.TB, args ...string) *Node {
	t.Helper()
	return How{}.Start(t, args...)
}

// Start is Start for a process that is run like that.
func (h How) Start(t testing.TB, args ...string) *Node {
	t.Helper()
	if h.Binary == "" {
		h.Binary = Binary(t)
	}
	if h.Host == "" {
		h.Host = Host(t)
	}
	n := &Node{t: t, how: h, args: args, data: t.TempDir()}
	n.start()
	t.Cleanup(func() {
		n.Kill()
		if t.Failed() {
			t.Logf("log of %s:\n%s", n.ID, n.log.read())
		}
	})
	return n
}

// readyLine is what a node logs when it serves.
type readyLine struct{ Msg, ID, GRPC, HTTP, Admin, Etcd string }

func (n *Node) start() {
	n.t.Helper()
	if n.log == nil {
		n.log = newLogFile(n.t)
	}
	free := net.JoinHostPort(n.how.Host, "0")
	all := []string{n.how.Binary, "serve", "--grpc", free, "--http", free, "--etcd-listen", free, "--data-dir", n.data}
	all = append(all, n.args...)
	if n.GRPC != "" { // again, at the same place
		all = append(all, "--grpc", n.GRPC, "--http", n.HTTP, "--id", n.ID)
		if !slices.Contains(n.args, "--etcd") {
			all = append(all, "--etcd-listen", n.Etcd)
		}
	}
	all = append(slices.Clone(n.how.Prefix), all...)
	n.cmd = exec.Command(all[0], all[1:]...)
	n.cmd.Env = append(os.Environ(), n.how.Env...)
	n.cmd.Stdout = n.log.file // it is to stay empty, or the log is not one of lines in JSON
	stderr, err := n.cmd.StderrPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	ready := make(chan readyLine, 1)
	n.done = make(chan struct{})
	go func() {
		n.copyLog(stderr, ready)
		n.err = n.cmd.Wait()
		close(n.done)
	}()
	select {
	case line, serves := <-ready:
		if !serves {
			n.t.Fatalf("%s did not become ready:\n%s", strings.Join(all, " "), n.log.read())
		}
		n.ID, n.GRPC, n.HTTP, n.Admin, n.Etcd = line.ID, line.GRPC, line.HTTP, line.Admin, line.Etcd
	case <-time.After(Patience):
		_ = n.cmd.Process.Kill()
		n.t.Fatalf("%s is not ready after %v\n%s", strings.Join(all, " "), Patience, n.log.read())
	}
	if n.Client == nil {
		options := append([]client.Option{client.WithTimeout(Patience)}, n.how.Client...)
		if n.Client, err = client.NewNode(n.GRPC, options...); err != nil {
			n.t.Fatal(err)
		}
		n.t.Cleanup(func() { _ = n.Client.Close() })
	}
}

// copyLog copies what the node writes into its log until it ends, and tells the line that says
// that it is ready; it closes ready at the end.
func (n *Node) copyLog(stderr io.Reader, ready chan<- readyLine) {
	defer close(ready)
	for r, told := bufio.NewReader(stderr), false; ; {
		text, err := r.ReadBytes('\n')
		_, _ = n.log.file.Write(text) // a test that misses it fails
		var line readyLine
		if !told && json.Unmarshal(text, &line) == nil && line.Msg == "ready" {
			ready <- line
			told = true
		}
		if err != nil {
			return
		}
	}
}

// Restart starts the node again under its id and ports, after it was killed or
// stopped.
func (n *Node) Restart() {
	n.t.Helper()
	<-n.done
	n.start()
}

// RestartElsewhere is Restart on other ports, for a node that was started with an id.
func (n *Node) RestartElsewhere() {
	n.t.Helper()
	<-n.done
	n.GRPC, n.Client = "", nil
	n.start()
}

// Kill ends the process as a crash would, and waits until it is gone.
func (n *Node) Kill() {
	_ = n.cmd.Process.Kill() // it may have ended by itself
	<-n.done
}

// Signal sends the process a signal.
func (n *Node) Signal(s syscall.Signal) {
	n.t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		n.t.Fatalf("signal %v to %s: %v", s, n.ID, err)
	}
}

// Forget has the node be started without these variables of its environment from now on.
func (n *Node) Forget(variables ...string) {
	n.how.Env = slices.DeleteFunc(slices.Clone(n.how.Env), func(v string) bool { return slices.Contains(variables, v) })
}

// Ended is closed when the process has ended.
func (n *Node) Ended() <-chan struct{} { return n.done }

// Wait waits for the end of the process and returns its exit code.
func (n *Node) Wait(patience time.Duration) int {
	n.t.Helper()
	select {
	case <-n.done:
	case <-time.After(patience):
		n.t.Fatalf("%s has not ended after %v", n.ID, patience)
	}
	var exit *exec.ExitError
	if errors.As(n.err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// Log returns what the node has written to standard error so far: one JSON object
// per line.
func (n *Node) Log() string { return n.log.read() }

var memberLeft = regexp.MustCompile(`.*"msg":"new view".*"left":"[^"].*`)

// MemberLeft returns the first line of the log that tells of a view without a member of the one before, "" if there is none.
func (n *Node) MemberLeft() string { return memberLeft.FindString(n.Log()) }

// DataDir returns the data directory of a node whose arguments name none.
func (n *Node) DataDir() string { return n.data }

// PID returns the process's number.
func (n *Node) PID() int { return n.cmd.Process.Pid }

// Nodes is the cluster as the node sees it, empty if it does not answer.
func (n *Node) Nodes() *weirv1.ListNodesResponse {
	ctx, cancel := context.WithTimeout(context.Background(), listPatience)
	defer cancel()
	resp, err := n.Client.ListNodes(ctx)
	if err != nil {
		return &weirv1.ListNodesResponse{}
	}
	return resp
}

// AwaitMembers waits until all nodes route by one view of just these members and
// reach each other, and returns the number of that view.
func AwaitMembers(t testing.TB, patience time.Duration, nodes ...*Node) uint64 {
	t.Helper()
	var view uint64
	Await(t, patience, func() error {
		view = 0
		for _, n := range nodes {
			resp := n.Nodes()
			members := 0
			for _, m := range resp.GetNodes() {
				if m.GetMember() {
					members++
				}
				if m.GetMember() && !m.GetReachable() {
					return fmt.Errorf("%s does not reach %s", n.ID, m.GetId())
				}
			}
			if view == 0 {
				view = resp.GetView()
			}
			if members != len(nodes) || view != resp.GetView() {
				return fmt.Errorf("%s is at view %d with %d members, want view %d with %d", n.ID, resp.GetView(), members, view, len(nodes))
			}
		}
		return nil
	})
	return view
}

// AwaitSettled waits until the nodes are one cluster, and no partition is to move.
func AwaitSettled(t testing.TB, patience time.Duration, nodes ...*Node) {
	t.Helper()
	AwaitMembers(t, patience, nodes...)
	Await(t, patience, func() error {
		for _, n := range nodes {
			for _, m := range n.Nodes().GetNodes() {
				if m.GetMember() && (m.GetWanted()+m.GetLeaving() > 0 || m.GetActive() == 0) {
					return fmt.Errorf("%s sees that %s holds %d, wants %d and still has %d", n.ID, m.GetId(), m.GetActive(), m.GetWanted(), m.GetLeaving())
				}
			}
		}
		return nil
	})
}

// Await waits until the condition returns no error, and fails with its last one if
// that does not happen in time.
func Await(t testing.TB, patience time.Duration, condition func() error) {
	t.Helper()
	over := time.After(patience)
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-over:
			t.Fatalf("after %v: %v", patience, err)
		case <-look.C:
		}
	}
}

// logFile collects what a process writes to standard error.
type logFile struct{ file *os.File }

func newLogFile(t testing.TB) *logFile {
	f, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return &logFile{f}
}

func (l *logFile) read() string {
	b, err := os.ReadFile(l.file.Name())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Metric returns the value of a node's metric that has no labels.
func (n *Node) Metric(t testing.TB, name string) float64 {
	t.Helper()
	resp, err := http.Get("http://" + n.HTTP + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n"+name+" ")
	if !found {
		t.Fatalf("%s has no metric %s", n.ID, name)
	}
	line, _, _ := strings.Cut(rest, "\n")
	value, err := strconv.ParseFloat(line, 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}
