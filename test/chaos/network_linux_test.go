package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// network is a bridge, on which this process and etcd have an address each, and network
// namespaces behind it, one for each node. A way is cut by giving it a neighbour that
// does not exist: what is sent is lost, as by a broken switch.
type network struct {
	*stage
	bridge string         // its name, with which those of the namespaces begin
	prefix string         // of addresses: "10.217.33."
	hosts  map[string]int // last bytes of addresses, by node
}

var networks atomic.Int32 // so far: what is deleted goes a little later

// Last bytes of addresses.
const (
	callers   = 1
	etcdHost  = 2
	firstNode = 11
)

const nowhere = "02:00:00:00:00:01" // a locally administered, unused address

// newNetwork starts nodes in namespaces of their own. It leaves the test out where that is not
// permitted.
func newNetwork(t *testing.T, nodes int) *network {
	t.Helper()
	testform.NotWhileRacing(t)
	if os.Geteuid() != 0 {
		testform.LeaveOut(t, "network namespaces need root")
	}
	if out, err := exec.Command("ip", "netns", "list").CombinedOutput(); err != nil {
		testform.LeaveOut(t, fmt.Sprintf("no network namespaces here: %v\n%s", err, out))
	}
	number := int(networks.Add(1))
	subnet := os.Getpid() + 997*number // far from those of a process with the next number
	n := &network{
		stage:  &stage{t: t, rules: writeRules(t), peerTimeout: *peerTimeout},
		bridge: fmt.Sprintf("w%d.%d", os.Getpid(), number),
		prefix: fmt.Sprintf("10.%d.%d.", 128+subnet/250%100, subnet%250),
		hosts:  make(map[string]int),
	}
	n.ip("link add %s type bridge", n.bridge)
	t.Cleanup(func() { n.ip("link delete %s", n.bridge) })
	n.ip("address add %s/24 dev %s", n.address(callers), n.bridge)
	n.ip("address add %s/24 dev %s", n.address(etcdHost), n.bridge)
	n.ip("link set %s up", n.bridge)
	n.etcd = process.StartEtcdOn(t, n.address(etcdHost))
	for i := range nodes {
		n.nodes = append(n.nodes, n.startIn(firstNode+i))
	}
	n.settle(hung)
	return n
}

// startIn starts a node in a namespace of its own.
func (n *network) startIn(host int) *process.Node {
	n.t.Helper()
	id := fmt.Sprintf("node-%d", host)
	space := n.space(host)
	n.ip("netns add %s", space)
	n.t.Cleanup(func() { n.ip("netns delete %s", space) })
	n.hosts[id] = host
	n.ip("link add %s type veth peer name eth0 netns %s", space, space)
	n.t.Cleanup(func() { n.ip("link delete %s", space) })
	n.ip("link set %s master %s up", space, n.bridge)
	n.ip("-netns %s link set lo up", space)
	n.ip("-netns %s address add %s/24 dev eth0", space, n.address(host))
	n.ip("-netns %s link set eth0 up", space)
	how := process.How{Prefix: []string{"ip", "netns", "exec", space}, Host: n.address(host)}
	return how.Start(n.t, "--id", id, "--etcd", n.etcd.Endpoint, "--rules", n.rules, "--peer-timeout", n.peerTimeout.String(), "--insecure")
}

// space returns the name of a node's namespace, and of the link to it.
func (n *network) space(host int) string { return fmt.Sprintf("%s.%d", n.bridge, host) }

func (n *network) address(host int) string { return n.prefix + fmt.Sprint(host) }

// ipCommands has one command at a time change the network.
var ipCommands sync.Mutex

// ip runs the command ip.
func (n *network) ip(format string, args ...any) {
	n.t.Helper()
	ipCommands.Lock()
	defer ipCommands.Unlock()
	command := fmt.Sprintf(format, args...)
	if out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput(); err != nil {
		n.t.Fatalf("ip %s: %v\n%s", command, err, out)
	}
}

// cutOneWay loses all that a sends to a host, and heal ends that.
func (n *network) cutOneWay(a *process.Node, host int) {
	n.t.Helper()
	n.ip("-netns %s neighbour replace %s lladdr %s nud permanent dev eth0", n.space(n.hosts[a.ID]), n.address(host), nowhere)
}

func (n *network) heal(a *process.Node, host int) {
	n.t.Helper()
	n.ip("-netns %s neighbour delete %s dev eth0", n.space(n.hosts[a.ID]), n.address(host))
}

// split cuts all ways between some nodes and others. The returned function heals them.
func (n *network) split(some, others []*process.Node) (healAll func()) {
	n.t.Helper()
	each := func(f func(a *process.Node, host int)) {
		for _, a := range some {
			for _, b := range others {
				f(a, n.hosts[b.ID])
				f(b, n.hosts[a.ID])
			}
		}
	}
	each(n.cutOneWay)
	return func() { n.t.Helper(); each(n.heal) }
}

// cutTime is how long ways are cut: longer than a lease.
func cutTime() time.Duration { return brief(20*time.Second, 8*time.Second) }

// An owner that some nodes do not reach is asked through others that do.
func TestOwnerCutOffFromSomeNodes(t *testing.T) {
	form.FullOnly(t)
	n := newNetwork(t, 5)
	f := n.startTraffic()
	wait(calm())
	heal := n.split(n.nodes[:1], n.nodes[1:3])
	cut := time.Now()
	wait(cutTime())
	g := f.report("while it was cut off", cut)
	if g.sources[weirv1.Source_SOURCE_RELAYED] == 0 {
		t.Error("nothing was relayed")
	}
	heal()
	_, took := n.settle(healed)
	t.Logf("healed %v later", took.Round(time.Millisecond))
	wait(calm() / 2)
	f.finish()
	f.noErrors()
	more := nothing
	if g.pace < enoughPace {
		t.Logf("the machine is too busy for relays to be in time, so standbys may count apart: %.0f %% of the checks were asked in time", 100*g.pace)
		more = func(a *account) int { return a.apart }
	}
	f.exactBut(more, func(a *account) int { return a.delayed }) // answers are lost with the way
}

// An owner that does not reach etcd keeps what it holds, as long as the others answer it.
func TestOwnerCutOffFromEtcd(t *testing.T) {
	form.FullOnly(t)
	n := newNetwork(t, 3)
	f := n.startTraffic()
	wait(calm())
	n.cutOneWay(n.nodes[0], etcdHost)
	cut := time.Now()
	wait(cutTime())
	f.report("while it was cut off", cut)
	n.heal(n.nodes[0], etcdHost)
	wait(calm())
	_, took := n.settle(healed)
	t.Logf("settled %v later", took.Round(time.Millisecond))
	f.finish()
	f.noErrors()
	f.exact()
}

// silenceTakeover is the time in which a member that reaches etcd and no other is to have successors: 8 s until it is dropped, and 2 s
// until it cannot decide any more and they have its partitions.
const silenceTakeover = takeover + 2*time.Second

// A member that reaches etcd and no other member is dropped although its etcd lease lives, and comes back when it is reached. Its
// callers are granted a limit of their own, at most.
func TestMemberCutOffFromOthers(t *testing.T) {
	notInBrief(t)
	shareMachine(t)
	n := newNetwork(t, 4)
	f := n.startTraffic()
	wait(calm())
	lost, others := n.nodes[:1], n.nodes[1:]
	heal := n.split(lost, others)
	cut := time.Now()
	_, took := n.settleOf(silenceTakeover, others...)
	t.Logf("the others have all partitions after %v", took.Round(time.Millisecond))
	if took < 5*time.Second {
		t.Errorf("it is dropped in less than 5 s")
	}
	wait(cutTime() - took)
	f.report("while it was cut off", cut)
	t.Logf("its own callers: %v", f.seen(cut, time.Now(), others...))
	heal()
	healedAt := time.Now()
	_, took = n.settle(healed)
	t.Logf("healed %v later", took.Round(time.Millisecond))
	wait(calm() / 2)
	f.report("since it is healed", healedAt)
	f.finish()
	f.noErrors(lost...)
	f.ledger.noneOver(t, func(a *account) int { return a.limit })
}

// Two sides that do not reach each other grant a limit each, at most, and are one again in seconds. The
// majority has all owners again after a while.
func TestSplit(t *testing.T) {
	notInBrief(t)
	size := brief(5, 3)
	n := newNetwork(t, size)
	f := n.startTraffic()
	wait(calm())
	minority, majority := n.nodes[:size/2], n.nodes[size/2:] // etcd is on the side of the majority
	heal := n.split(minority, majority)
	for _, m := range minority {
		n.cutOneWay(m, etcdHost)
	}
	cut := time.Now()
	wait(cutTime())
	split := f.report("while split", cut)
	t.Logf("the majority's callers: %v", f.seen(cut, time.Now(), minority...))
	t.Logf("the minority's callers: %v", f.seen(cut, time.Now(), majority...))
	if split.sources[weirv1.Source_SOURCE_OWNER] == 0 {
		t.Error("no owner has answered")
	}
	heal()
	for _, m := range minority {
		n.heal(m, etcdHost)
	}
	healedAt := time.Now()
	_, took := n.settle(healed)
	t.Logf("healed %v later", took.Round(time.Millisecond))
	wait(calm() / 2)
	f.report("since it is healed", healedAt)
	f.finish()
	from := cut
	if len(minority) > 1 { // some keys have their owner and their standby there
		from = cut.Add(takeover + calm())
	}
	if g := f.seen(from, time.Now(), minority...); g.errors > 0 || g.unexcused > 0 {
		t.Errorf("the majority's callers, since %v after the cut: %v\n%s", from.Sub(cut), g, f.undecidedWhen())
	}
	f.ledger.noneOver(t, func(a *account) int { return a.limit })
}

// The ways that are cut are cut, and no others.
func TestNetworkCuts(t *testing.T) {
	form.FullOnly(t)
	n := newNetwork(t, 3)
	heal := n.split(n.nodes[:1], n.nodes[1:2])
	sees := func(a, b *process.Node) bool {
		nodes := a.Nodes().GetNodes()
		i := slices.IndexFunc(nodes, func(m *weirv1.Node) bool { return m.GetId() == b.ID })
		return i >= 0 && nodes[i].GetReachable()
	}
	process.Await(t, hung, func() error {
		for i, a := range n.nodes {
			for j, b := range n.nodes {
				if cut := i+j == 1; sees(a, b) == cut {
					return fmt.Errorf("%s reaches %s: %v", a.ID, b.ID, !cut)
				}
			}
		}
		return nil
	})
	heal()
	n.settle(healed)
}
