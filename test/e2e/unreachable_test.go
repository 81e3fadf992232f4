package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/test/process"
)

// way is a TCP proxy in front of a node: what is advertised of the node, and what the test can cut.
type way struct {
	Address string

	gate sync.RWMutex // held while the way is mute

	mu       sync.Mutex
	to       string
	listener net.Listener
	open     []net.Conn
	copies   sync.WaitGroup
}

// newWay returns a way to an address, which is open until the test ends.
func newWay(t *testing.T, to string) *way {
	t.Helper()
	w := &way{Address: freeAddress(t), to: to}
	w.mend(t)
	t.Cleanup(w.cut)
	return w
}

// mend opens the way again.
func (w *way) mend(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", w.Address)
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	w.listener = l
	w.mu.Unlock()
	w.copies.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			w.copies.Go(func() { w.join(conn) })
		}
	})
}

func (w *way) join(conn net.Conn) {
	defer func() { _ = conn.Close() }() // the other end may have been first
	w.mu.Lock()
	to := w.to
	w.mu.Unlock()
	other, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	w.mu.Lock()
	w.open = append(w.open, conn, other)
	w.mu.Unlock()
	w.copies.Go(func() {
		_, _ = io.Copy(gated{other, w}, conn) // it ends with either connection
		_ = other.Close()
	})
	_, _ = io.Copy(gated{conn, w}, other)
	_ = other.Close()
}

// gated is a connection on which nothing is sent while the way is mute.
type gated struct {
	io.Writer
	w *way
}

func (g gated) Write(b []byte) (int, error) {
	g.w.gate.RLock()
	defer g.w.gate.RUnlock()
	return g.Writer.Write(b)
}

// mute has nothing pass any more until unmute, as behind a firewall that drops packets: connections neither end nor are refused.
func (w *way) mute(t *testing.T) (unmute func()) {
	t.Helper()
	w.gate.Lock()
	unmute = sync.OnceFunc(w.gate.Unlock)
	t.Cleanup(unmute)
	return unmute
}

// redirect has the way lead to another node from now on.
func (w *way) redirect(t *testing.T, to string) {
	t.Helper()
	w.cut()
	w.mu.Lock()
	w.to = to
	w.mu.Unlock()
	w.mend(t)
}

// cut ends all connections, and refuses others.
func (w *way) cut() {
	w.mu.Lock()
	if w.listener != nil {
		_ = w.listener.Close()
	}
	for _, conn := range w.open {
		_ = conn.Close()
	}
	w.listener, w.open = nil, nil
	w.mu.Unlock()
	w.copies.Wait()
}

// output is what a process has written. Its methods may be called from several goroutines.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// command starts weir serve with these arguments, and does not wait until it is ready.
func command(t *testing.T, args ...string) (cmd *exec.Cmd, log *output, ended <-chan error) {
	t.Helper()
	cmd, log = exec.Command(process.Binary(t), append([]string{"serve", "--data-dir", t.TempDir()}, args...)...), new(output)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		end <- cmd.Wait()
		close(done)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-done
	})
	return cmd, log, end
}

// No node listens where the first one of a cluster says that it is reached. It says so, and the second node does not join: it would forward in vain.
func TestUnreachableFirstNode(t *testing.T) {
	t.Parallel()
	etcd, nowhere := process.StartEtcd(t), freeAddress(t)
	first := process.Start(t, "--etcd", etcd.Endpoint, "--advertise", nowhere, "--rules", writeRules(t, rulesPerYear(3)))
	process.Await(t, process.Patience, func() error {
		if text := reasons(first); !strings.Contains(text, "does not answer at the address that it advertises, "+nowhere) {
			return fmt.Errorf("the first node's health: %q", text)
		}
		return nil
	})
	grpc, http := freeAddress(t), freeAddress(t)
	cmd, log, ended := command(t, "--id", "second", "--etcd", etcd.Endpoint, "--grpc", grpc, "--http", http, "--rules", writeRules(t, rulesPerYear(3)))
	said := first.ID + " at " + nowhere
	process.Await(t, process.Patience, func() error {
		if text := log.String(); !strings.Contains(text, "not joining before members answer this node") || !strings.Contains(text, said) {
			return fmt.Errorf("the second node's log: %s", text)
		}
		return nil
	})
	if status := readyz(http); status != 503 {
		t.Errorf("/readyz is %d", status)
	}
	for _, n := range first.Nodes().GetNodes() {
		if n.GetId() == "second" && n.GetMember() {
			t.Errorf("%v", n)
		}
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A node that advertises an address where it is not reached stays outside, says so, and takes no time to stop.
func TestUnreachableAdvertisedAddress(t *testing.T) {
	t.Parallel()
	const users, limit = 60, 3
	etcd, nodes := startThree(t, rulesPerYear(limit), "--peer-timeout", "4s")
	awaitSettled(t, nodes...)
	exhaust(t, nodes[0], users, limit)
	grpc, http, nowhere := freeAddress(t), freeAddress(t), freeAddress(t)
	cmd, log, ended := command(t, "--id", "lost", "--etcd", etcd.Endpoint, "--grpc", grpc, "--http", http, "--advertise", nowhere,
		"--rules", writeRules(t, rulesPerYear(limit)), "--peer-timeout", "4s")
	lost, err := client.NewNode(grpc, client.WithTimeout(process.Patience))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lost.Close() }()
	said := "does not reach it at " + nowhere
	process.Await(t, process.Patience, func() error {
		health, err := lost.Health(t.Context())
		if err != nil {
			return err
		}
		for of, text := range map[string]string{
			"the node's health": strings.Join(health.GetReasons(), "\n"), "a member's health": reasons(nodes[1]),
			"a member's nodes": nodes[2].Nodes().String(), "the nodes of weir": weirNodes(t, nodes[0]),
		} {
			if !strings.Contains(text, said) || !strings.Contains(text, nodes[0].ID) {
				return fmt.Errorf("%s: %s", of, text)
			}
		}
		return nil
	})
	for i := range users {
		ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
		resp, err := lost.Check(ctx, user(fmt.Sprint("user-", i)))
		cancel()
		if err != nil || resp.GetAllowed() {
			t.Errorf("user %d: %v, %v", i, resp, err)
		}
	}
	if status := readyz(http); status != 503 {
		t.Errorf("/readyz is %d", status)
	}
	for _, n := range nodes[0].Nodes().GetNodes() {
		if n.GetId() == "lost" && (n.GetMember() || n.GetPartitions()+n.GetActive() > 0) {
			t.Errorf("%v", n)
		}
	}
	process.Await(t, process.Patience, func() error { // the log says it a little later than health
		for _, text := range []string{log.String(), nodes[0].Log()} {
			if !strings.Contains(text, "is not reached by the members") {
				return fmt.Errorf("not logged yet:\n%s", text)
			}
		}
		return nil
	})
	began := time.Now()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if took := time.Since(began); err != nil || took > 15*time.Second {
			t.Errorf("it stops after %v: %v", took, err)
		}
	case <-time.After(process.Patience):
		t.Fatal("it has not stopped")
	}
	if n := strings.Count(log.String(), "is not reached by the members"); n != 1 {
		t.Errorf("it is logged %d times, want once:\n%s", n, log)
	}
	if n := strings.Count(nodes[0].Log(), "is not reached by the members"); n != 1 {
		t.Errorf("a member logs it %d times, want once", n)
	}
}

// weirNodes returns what weir nodes prints.
func weirNodes(t *testing.T, n *process.Node) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), process.Binary(t), "nodes", "--node", n.GRPC).CombinedOutput()
	if err != nil {
		return err.Error() + string(out)
	}
	return string(out)
}

// A node whose port is blocked becomes a member when it is reached.
func TestBlockedPortIsOpened(t *testing.T) {
	t.Parallel()
	etcd, nodes := startThree(t, rulesPerYear(1000), "--peer-timeout", "4s")
	grpc := freeAddress(t)
	w := newWay(t, grpc)
	w.cut()
	http := freeAddress(t)
	command(t, "--id", "late", "--etcd", etcd.Endpoint, "--grpc", grpc, "--http", http, "--advertise", w.Address,
		"--rules", writeRules(t, rulesPerYear(1000)), "--peer-timeout", "4s")
	process.Await(t, process.Patience, func() error {
		if text := reasons(nodes[0]); !strings.Contains(text, w.Address) {
			return fmt.Errorf("health says %q", text)
		}
		return nil
	})
	w.mend(t)
	process.Await(t, process.Patience, func() error {
		if status := readyz(http); status != 200 {
			return fmt.Errorf("/readyz is %d", status)
		}
		return nil
	})
	// The others hear a little later of what the node knows itself.
	process.Await(t, process.Patience, func() error {
		listed := nodes[0].Nodes().GetNodes()
		if len(listed) != len(nodes)+1 {
			return fmt.Errorf("%d nodes are listed: %v", len(listed), listed)
		}
		for _, n := range listed {
			if !n.GetMember() || n.GetPartitions() == 0 || n.GetUnreached() != "" {
				return fmt.Errorf("not a member with partitions: %v", n)
			}
		}
		return nil
	})
}

// An operator's word takes a dead member out before its lease has ended, and its counters go on.
func TestNodesRemove(t *testing.T) {
	process.NotInBrief(t)
	t.Parallel()
	const users, limit = 100, 3
	_, nodes := startThree(t, rulesPerYear(limit), "--peer-timeout", "4s")
	awaitSettled(t, nodes...)
	exhaust(t, nodes[0], users, limit)
	pause(t, 500*time.Millisecond) // the standbys have it all
	remove := func(id string) (string, error) {
		out, err := exec.CommandContext(t.Context(), process.Binary(t), "nodes", "remove", id, "--node", nodes[0].GRPC).CombinedOutput()
		return string(out), err
	}
	if out, err := remove("none"); err == nil || !strings.Contains(out, `"none": it is no member`) {
		t.Errorf("a node that there is not: %v, %s", err, out)
	}
	for _, n := range nodes {
		if out, err := remove(n.ID); err == nil || !strings.Contains(out, "weir drain "+n.ID) {
			t.Errorf("a member that lives: %v, %s", err, out)
		}
	}
	victim, others := nodes[2], nodes[:2]
	victim.Signal(syscall.SIGSTOP) // so that its lease is not missed before its time, nor its port free
	killed := time.Now()
	process.Await(t, process.Patience, func() error {
		out, err := remove(victim.ID)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if want := victim.ID + " is no member of view"; !strings.Contains(out, want) {
			t.Errorf("%s, want %s", out, want)
		}
		return nil
	})
	process.AwaitMembers(t, process.Patience, others...)
	t.Logf("it is removed after %v", time.Since(killed).Round(100*time.Millisecond))
	awaitSettled(t, others...)
	t.Logf("others have its partitions after %v", time.Since(killed).Round(100*time.Millisecond))
	for i := range users {
		resp, err := check(t, others[i%2], i)
		if err != nil || resp.GetAllowed() {
			t.Errorf("user %d: %v, %v", i, resp, err)
		}
	}
	victim.Signal(syscall.SIGCONT)
	process.AwaitMembers(t, process.Patience, nodes...)
	awaitSettled(t, nodes...)
	for i := range users {
		resp, err := check(t, nodes[i%3], i)
		if err != nil || resp.GetAllowed() {
			t.Errorf("user %d, once it is back: %v, %v", i, resp, err)
		}
	}
}

// A member that the others do not reach any more is dropped although it lives, and its lease in etcd as well. Its counters go on at others, and it
// comes back when it is reached.
func TestUnreachableMember(t *testing.T) {
	t.Parallel()
	const dropped = "its packets are dropped"
	for name, cut := range map[string]func(t *testing.T, w *way) (heal func()){
		"its port is closed": func(t *testing.T, w *way) func() {
			w.cut()
			return func() { w.mend(t) }
		},
		dropped: func(t *testing.T, w *way) func() { return w.mute(t) },
	} {
		t.Run(name, func(t *testing.T) {
			if name == dropped {
				process.NotInBrief(t)
			}
			t.Parallel()
			rules := writeRules(t, rulesPerYear(yearlyLimit))
			etcd := process.StartEtcd(t)
			args := []string{"--etcd", etcd.Endpoint, "--rules", rules, "--peer-timeout", "4s"}
			nodes := []*process.Node{process.Start(t, args...), process.Start(t, args...)}
			grpc := freeAddress(t)
			w := newWay(t, grpc)
			lost := process.Start(t, append(args, "--id", "lost", "--grpc", grpc, "--advertise", w.Address)...)
			dropAndComeBack(t, nodes, lost, "does not reach it at "+w.Address, func() func() { return cut(t, w) })
		})
	}
}

const yearlyLimit = 3

// dropAndComeBack cuts the last of three members off from the others, waits until it is dropped and says so, and heals that.
func dropAndComeBack(t *testing.T, nodes []*process.Node, lost *process.Node, says string, cut func() (heal func())) {
	t.Helper()
	const users = 100
	all := append(slices.Clone(nodes), lost)
	awaitSettled(t, all...)
	exhaust(t, nodes[0], users, yearlyLimit)
	pause(t, 500*time.Millisecond)

	began := time.Now()
	heal := cut()
	denied := func(when string, of ...*process.Node) {
		t.Helper()
		for i := range users {
			resp, err := check(t, of[i%len(of)], i)
			if err != nil || resp.GetAllowed() {
				t.Fatalf("user %d %s: %v, %v", i, when, resp, err)
			}
		}
	}
	for len(nodes[0].Nodes().GetNodes()) != 3 || isMember(nodes[0], lost.ID) {
		denied("while it is not reached", nodes...)
		if time.Since(began) > process.Patience {
			t.Fatal("it is still a member")
		}
	}
	took := time.Since(began)
	t.Logf("it is dropped after %v", took.Round(100*time.Millisecond))
	if took < 5*time.Second {
		t.Error("that is less than 5 s")
	}
	process.AwaitMembers(t, process.Patience, nodes...)
	awaitOwned(t, nodes...)
	denied("after it was dropped", all...)
	process.Await(t, process.Patience, func() error {
		for _, n := range all {
			if text := reasons(n); !strings.Contains(text, says) {
				return fmt.Errorf("the health of %s says %s, want %s", n.ID, text, says)
			}
		}
		if text := nodes[1].Nodes().String(); !strings.Contains(text, says) {
			return fmt.Errorf("the nodes say %s, want %s", text, says)
		}
		return nil
	})
	if log := nodes[0].Log() + nodes[1].Log(); !strings.Contains(log, "a member is dropped because a majority of the members has not reached it for 5 s") {
		t.Errorf("the log does not say why it was dropped:\n%s", log)
	}

	heal()
	awaitSettled(t, all...)
	denied("once it is back", all...)
}

func isMember(seenBy *process.Node, id string) bool {
	for _, n := range seenBy.Nodes().GetNodes() {
		if n.GetId() == id {
			return n.GetMember()
		}
	}
	return false
}

// awaitOwned waits until members hold what they own.
func awaitOwned(t *testing.T, nodes ...*process.Node) {
	t.Helper()
	process.Await(t, process.Patience, func() error {
		for _, m := range nodes[0].Nodes().GetNodes() {
			if m.GetMember() && m.GetWanted() > 0 {
				return fmt.Errorf("%s wants %d", m.GetId(), m.GetWanted())
			}
		}
		return nil
	})
}
