package sim

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

// Plans are what they say: in order, over in time, and never without nodes to ask.
func TestDraw(t *testing.T) {
	drawn, clocks, waived := make(map[Kind]int), 0, 0
	for s := uint64(1); s <= 3000; s++ {
		p := Draw(s)
		if !reflect.DeepEqual(p, Draw(s)) {
			t.Fatalf("seed %d gives two plans", s)
		}
		if p.clocksApart() > 0 {
			clocks++
		}
		if p.waived(p.Calm - recovery) {
			waived++
		}
		alive := slices.Clone(p.Start)
		down := make(map[string]time.Duration)
		slow := make(map[[2]string]time.Duration)
		var last time.Duration
		for _, f := range p.Faults {
			drawn[f.Kind]++
			if f.At < last || f.At < settle || f.At+f.For > p.Calm {
				t.Errorf("seed %d: not in its time: %v", s, f)
			}
			last = f.At
			switch f.Kind {
			case Slow:
				if f.At < slow[[2]string{f.Node, f.Other}] {
					t.Errorf("seed %d: slow twice, after %v", s, f)
				}
				slow[[2]string{f.Node, f.Other}], slow[[2]string{f.Other, f.Node}] = f.At+f.For, f.At+f.For
			case Join:
				alive = append(alive, f.Node)
				down[f.Node] = f.At + startFor
			case Drain:
				alive = slices.DeleteFunc(alive, func(id string) bool { return id == f.Node })
			case Restart, Flash:
				down[f.Node] = f.At + startFor
			case Crash, Stall, Lag, Foreign:
				down[f.Node] = f.At + f.For
			case Reused:
				alive = append(slices.DeleteFunc(alive, func(id string) bool { return id == f.Node }), f.Other)
				down[f.Other] = f.At + f.For
			case Split:
				if len(f.Group) == 0 || 2*len(f.Group) >= len(alive) {
					t.Errorf("seed %d: %v of %v", s, f, alive)
				}
			case Exile:
				if 2*len(f.Group) <= len(alive) || len(f.Group) >= len(alive) {
					t.Errorf("seed %d: %v of %v", s, f, alive)
				}
			}
			up := 0
			for _, id := range alive {
				if down[id] <= f.At {
					up++
				}
			}
			if len(alive) < minNodes || len(alive) > maxNodes || up < leftAlone {
				t.Errorf("seed %d: %d nodes, %d up, after %v", s, len(alive), up, f)
			}
		}
	}
	if clocks < 100 || waived < 50 {
		t.Errorf("clocks differ %d times, and the others go on without a majority %d times", clocks, waived)
	}
	for _, group := range [][]Kind{announced, ofEtcd, deaths, divisions, ofClocks, exiles, addresses, hidings} {
		for _, k := range group {
			if drawn[k] < 100 {
				t.Errorf("%s is drawn %d times", k, drawn[k])
			}
		}
	}
}
