package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

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
	said := first.ID + " at " + nowhere + " (dial tcp " + nowhere + ": connect: connection refused)"
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

// A member that the others do not reach any more is dropped although it lives, and its lease in etcd as well. Its counters go on at others, and it
// comes back when it is reached.
func TestUnreachableMember(t *testing.T) {
	t.Parallel()
	const dropped = "its packets are dropped"
	for name, cut := range map[string]func(t *testing.T, w *way, http string) (heal func()){
		"its port is closed": func(t *testing.T, w *way, http string) func() {
			w.cut()
			return func() {
				if status := readyz(http); status != 503 {
					t.Errorf("/readyz of the one that was dropped is %d", status)
				}
				w.mend(t)
			}
		},
		dropped: func(t *testing.T, w *way, _ string) func() { return w.mute(t) },
	} {
		t.Run(name, func(t *testing.T) {
			if name == dropped {
				testform.NotInBrief(t)
			}
			t.Parallel()
			rules := writeRules(t, rulesPerYear(yearlyLimit))
			etcd := process.StartEtcd(t)
			args := []string{"--etcd", etcd.Endpoint, "--rules", rules, "--peer-timeout", "4s"}
			nodes := []*process.Node{process.Start(t, args...), process.Start(t, args...)}
			grpc := freeAddress(t)
			w := newWay(t, grpc)
			lost := process.Start(t, append(args, "--id", "lost", "--grpc", grpc, "--advertise", w.Address)...)
			dropAndComeBack(t, nodes, lost, w.Address, "does not reach it at "+w.Address, func() func() { return cut(t, w, lost.HTTP) })
		})
	}
}

const yearlyLimit = 3

// dropAndComeBack cuts the last of three members, which advertises that address, off from the others, waits until it is dropped, which health and log say,
// and heals that.
func dropAndComeBack(t *testing.T, nodes []*process.Node, lost *process.Node, address, says string, cut func() (heal func())) {
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
	by := []string{nodes[0].ID, nodes[1].ID}
	slices.Sort(by)
	logged := fmt.Sprintf(`it joins again once members reach it","id":"%s","incarnation":1,"address":"%s","not_reached_by":["%s"]`, lost.ID, address, strings.Join(by, `","`))
	if log := nodes[0].Log() + nodes[1].Log(); strings.Count(log, logged) != 1 {
		t.Errorf("the log does not say once that it was dropped, and why, %s:\n%s", logged, log)
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
