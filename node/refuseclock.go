package node

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirlimit/weir/cluster"
)

// clockPatience is how long a node waits for members to say what time it is, before it asks to become one. They may be dead.
const clockPatience = time.Second

// refuseClock returns an error if this node's clock differs from those of more than half of the members: of that number, or of those
// whose clocks are known if they are more. If fewer differ, theirs may be wrong.
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
