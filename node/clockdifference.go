package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weirlimit/weir/cluster"
)

// clockPatience is how long a node waits for members to say what time it is, before it asks to become one. They may be dead.
const clockPatience = time.Second

// enter asks for a place in the view once members answer, unless this node's clock is too far from theirs. It may be seen only then that there
// are any, so it is compared until this node is one of them.
func (n *node) enter(ctx, failed context.Context) error {
	if !n.await(ctx, failed, 0, n.seen.Load) {
		return nil
	}
	n.await(ctx, failed, clockPatience, func() bool { return len(n.owners.Clocks()) >= n.othersInView() })
	if err := n.refuseClock(0); err != nil || ctx.Err() != nil {
		return err
	}
	if n.awaitMembers(ctx, failed); ctx.Err() != nil || failed.Err() != nil {
		return nil
	}
	n.announce(func(self *cluster.Node) {
		if self.State == cluster.Joining {
			self.State = cluster.Ready
		}
	})
	var err error
	n.await(ctx, failed, 0, func() bool {
		err = n.refuseClock(n.othersInView())
		return n.isMember() || err != nil
	})
	if n.isMember() {
		return nil // health says it
	}
	return err
}

// othersInView returns how many members there are but this node.
func (n *node) othersInView() (others int) {
	for _, m := range n.membership.Latest().Routing.Present() {
		if m.ID != n.opts.ID {
			others++
		}
	}
	return others
}

// refuseClock says that most members whose clocks are known, of so many at least, have another time than this node. If they are fewer
// theirs may be wrong.
func (n *node) refuseClock(members int) error {
	clocks := n.owners.Clocks()
	var far []string
	for _, d := range clocks {
		if d.TooFar() {
			far = append(far, formatClock(d))
		}
	}
	if 2*len(far) <= max(members, len(clocks)) {
		return nil
	}
	return fmt.Errorf("clock: this node may not join: %s, more than %v; set this machine's clock, as with NTP, and start the node again",
		strings.Join(far[:min(len(far), 3)], ", "), cluster.MaxClockDifference)
}

func formatClock(d cluster.ClockDifference) string {
	which := "ahead of"
	if d.Ahead < 0 {
		which = "behind"
	}
	return fmt.Sprintf("node %s's clock is %v %s this node's", d.ID, d.Ahead.Abs().Round(time.Millisecond), which)
}
