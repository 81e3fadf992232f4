package ownership

import (
	"testing"
	"time"
)

// All nodes stop, and start again with their snapshots, except one that has lost its disk: each partition begins with the latest copy that any
// node has of it.
func TestSnapshotsOfAllNodes(t *testing.T) {
	for seed := range uint64(3) {
		runWorld(t, seed, func(w *nodeWorld) {
			var nodes []*worldNodeRun
			for _, id := range []string{"a", "b", "c"} {
				nodes = append(nodes, w.start(id, 1))
			}
			w.awaitSettled()
			stop := make(chan struct{})
			c := w.load(stop)
			w.wait(3 * time.Second)
			close(stop)
			w.wait(500 * time.Millisecond)
			kept := make(map[string][]snapshotPart)
			for _, x := range nodes {
				x.Flush(w.ctx)
				kept[x.Self.ID] = x.saveAll()
				w.kill(x)
			}
			kept["a"] = nil
			for _, x := range nodes {
				w.startWith(x.Self.ID, 2, kept[x.Self.ID])
			}
			w.awaitSettled()
			over, under := w.finish(c)
			if over != 0 || under != 0 || c.undecided.Load() != 0 {
				t.Errorf("seed %d: %d tokens too many, %d too few, %d undecided", seed, over, under, c.undecided.Load())
			}
		})
	}
}
