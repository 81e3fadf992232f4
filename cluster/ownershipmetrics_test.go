package cluster

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirlimit/weir/ring"
)

// Metrics say how many partitions nodes have handed over, got, continued after a death, and lost because they were believed dead.
func TestMovesAreCounted(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		count := func(counter func(*ownershipMetrics) prometheus.Counter) (n int) {
			for _, x := range c.alive {
				n += int(testutil.ToFloat64(counter(&x.owners.metrics)))
			}
			return n
		}
		handedOver := func(m *ownershipMetrics) prometheus.Counter { return m.handedOver }
		received := func(m *ownershipMetrics) prometheus.Counter { return m.received }
		continued := func(m *ownershipMetrics) prometheus.Counter { return m.continued }
		displaced := func(m *ownershipMetrics) prometheus.Counter { return m.displaced }
		merged := func(m *ownershipMetrics) prometheus.Counter { return m.merged }
		c.start("a", "b", "c")
		c.settled()
		moved := count(handedOver)
		if got := count(received); moved == 0 || got != moved {
			t.Errorf("%d partitions handed over, %d got", moved, got)
		}
		allowed := make(map[ring.Key]int)
		c.take(allowed, 200, 1)
		c.replicated()
		if n := count(continued) + count(displaced) + count(merged); n > 0 {
			t.Errorf("%d partitions continued or lost without a death, or counters got grants", n)
		}
		owned := 0
		for _, term := range c.alive["b"].owners.Deciding() {
			owned += int(boolByte(term > 0))
		}
		c.crash("b")
		c.take(allowed, 200, 1) // the standbys decide for b
		pass(5 * time.Second)
		c.registry.expire("b")
		c.settled()
		if got := count(continued); got != owned {
			t.Errorf("%d partitions continued, b had %d", got, owned)
		}
	})
}
