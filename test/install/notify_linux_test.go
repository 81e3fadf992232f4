package install

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlimit/weir/internal/xdstest"
	"github.com/weirlimit/weir/test/process"
)

// watchdogTimeout is what the tests have for WatchdogSec.
const watchdogTimeout = 900 * time.Millisecond

// message is what a node has told its service manager, and what /readyz of it said then.
type message struct {
	text   string
	readyz int // status; 0 without an answer
}

// has reports whether the message has that assignment.
func (m message) has(assignment string) bool {
	return strings.Contains("\n"+m.text+"\n", "\n"+assignment+"\n")
}

// manager stands at the other end of a node's NOTIFY_SOCKET, as systemd does.
type manager struct {
	t        *testing.T
	env      []string
	messages chan message
}

// newManager listens for a node whose HTTP is at that address.
func newManager(t *testing.T, address string) *manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	m := &manager{t, []string{"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=" + strconv.FormatInt(watchdogTimeout.Microseconds(), 10)}, make(chan message, 1000)}
	go func() {
		for buf := make([]byte, 4096); ; {
			n, err := conn.Read(buf)
			if err != nil {
				return // the test is over
			}
			msg := message{text: string(buf[:n])}
			if resp, err := http.Get("http://" + address + "/readyz"); err == nil {
				_ = resp.Body.Close()
				msg.readyz = resp.StatusCode
			}
			m.messages <- msg
		}
	}()
	return m
}

// next returns the next message that is no ping.
func (m *manager) next() message {
	m.t.Helper()
	for {
		if msg := m.any(); !msg.has("WATCHDOG=1") {
			return msg
		}
	}
}

func (m *manager) any() message {
	m.t.Helper()
	select {
	case msg := <-m.messages:
		return msg
	case <-time.After(process.Patience):
		m.t.Fatalf("nothing was told for %v", process.Patience)
		return message{}
	}
}

// quiet reports whether nothing is told for that long, after what has been told already.
func (m *manager) quiet(long time.Duration) bool {
	for len(m.messages) > 0 {
		<-m.messages
	}
	select {
	case <-m.messages:
		return false
	case <-time.After(long):
		return true
	}
}

// TestNotify: a node tells systemd what it does, when it does it.
func TestNotify(t *testing.T) {
	address := net.JoinHostPort(process.Host(t), "8080")
	m := newManager(t, address)
	n := process.How{Env: m.env}.Start(t, "--http", address)

	if msg := m.any(); !msg.has("READY=1") || msg.readyz != http.StatusOK || !strings.Contains(msg.text, "STATUS=serving gRPC at "+n.GRPC) {
		t.Errorf("first %+v, want READY=1 of a node whose /readyz says yes", msg)
	}

	// The watchdog is pinged within its timeout, except by a node that is stopped.
	for range 5 {
		start := time.Now()
		if msg := m.any(); !msg.has("WATCHDOG=1") {
			t.Errorf("%+v is no ping", msg)
		}
		if took := time.Since(start); took > watchdogTimeout {
			t.Logf("a ping after %v: this machine is busy", took)
		}
	}
	n.Signal(syscall.SIGSTOP)
	if !m.quiet(2 * watchdogTimeout) {
		if !m.quiet(2 * watchdogTimeout) { // one was under way
			t.Error("the watchdog is pinged although the node is stopped")
		}
	}
	n.Signal(syscall.SIGCONT)
	if msg := m.any(); !msg.has("WATCHDOG=1") {
		t.Errorf("%+v is no ping after the stop", msg)
	}

	before := monotonic(t)
	n.Signal(syscall.SIGHUP)
	msg := m.next()
	_, since, _ := strings.Cut(msg.text, "\nMONOTONIC_USEC=")
	at, err := strconv.ParseInt(strings.TrimSpace(since), 10, 64)
	if !msg.has("RELOADING=1") || err != nil || at < before || at > monotonic(t) {
		t.Errorf("%+v after SIGHUP, %v: want RELOADING=1 and a MONOTONIC_USEC of at least %d", msg, err, before)
	}
	if msg := m.next(); msg.text != "READY=1" {
		t.Errorf("%+v after RELOADING=1, want READY=1", msg)
	}

	n.Signal(syscall.SIGTERM)
	if msg := m.next(); !msg.has("STOPPING=1") {
		t.Errorf("%+v after SIGTERM, want STOPPING=1", msg)
	}
	if code := n.Wait(process.Patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// monotonic returns the time of CLOCK_MONOTONIC in microseconds.
func monotonic(t *testing.T) int64 {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	return now.Nano() / int64(time.Microsecond)
}

// A node that waits for the first rules of an xDS server keeps its service manager from starting it again, and says why.
func TestNotifyWhileRulesAreAwaited(t *testing.T) {
	host := process.Host(t)
	address := net.JoinHostPort(host, "8080")
	m := newManager(t, address)
	server := xdstest.New(t, nil)
	listen := net.JoinHostPort(host, "0")
	cmd := exec.Command(process.Binary(t), "serve", "--grpc", listen, "--http", address, "--etcd-listen", listen, "--data-dir", t.TempDir(),
		"--xds-server", server.Address, "--xds-node-id", xdstest.NodeID, "--xds-retry", "100ms", "--xds-retry-max", "100ms")
	cmd.Env, cmd.Stderr = append(os.Environ(), m.env...), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if msg := m.any(); !msg.has("STATUS=waiting for the first rules of the xDS server " + server.Address) {
		t.Errorf("first %+v", msg)
	}
	if msg := m.any(); !msg.has("EXTEND_TIMEOUT_USEC=60000000") || msg.readyz != http.StatusServiceUnavailable {
		t.Errorf("%+v of a node that waits", msg)
	}
	server.Start(t)
	server.Set(t, "1")
	if msg := m.any(); !msg.has("READY=1") || msg.readyz != http.StatusOK {
		t.Errorf("%+v once there are rules", msg)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestNotifyFails: a node serves although its service manager is gone.
func TestNotifyFails(t *testing.T) {
	n := process.How{Env: []string{"NOTIFY_SOCKET=/no/such/socket", "WATCHDOG_USEC=soon"}}.Start(t)
	n.Signal(syscall.SIGTERM)
	if code := n.Wait(process.Patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"the service manager was not notified", "no watchdog: WATCHDOG_USEC"} {
		if !strings.Contains(n.Log(), want) {
			t.Errorf("the log lacks %q", want)
		}
	}
}
