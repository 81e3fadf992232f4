package api

import "testing"

// While there are many calls, a connection gets more as long as it has fewer than its share of them, or few.
func TestConnectionsShareCalls(t *testing.T) {
	const most = 100 * fewCalls
	f := fairShares{most: most}
	f.change(0, fewCalls)
	f.change(0, most)
	if f.exceed(fewCalls) || !f.exceed(most+1) {
		t.Error("one connection with many may not have them, or more, or one with few may not have these")
	}
	f.change(fewCalls, fewCalls+1)
	if share := most / 3; f.exceed(share) || !f.exceed(share+1) {
		t.Error("two connections do not share the calls")
	}
	for range 2 * most {
		f.change(0, fewCalls+1)
	}
	if f.exceed(fewCalls) || !f.exceed(fewCalls+1) {
		t.Error("of very many connections each may not have few, or more")
	}
	for range 2 * most {
		f.change(fewCalls+1, 0)
	}
	f.change(fewCalls+1, fewCalls)
	if f.exceed(most) || f.holders.Load() != 1 {
		t.Errorf("%d connections are taken for such with many", f.holders.Load())
	}
	f.change(most, most/2-fewCalls)
	if f.exceed(most + 1) {
		t.Error("a connection may not have more of few")
	}
	f.change(most/2-fewCalls, 0)
	if f.total.Load() != fewCalls || f.holders.Load() != 0 {
		t.Errorf("%d calls are counted of %d connections with many", f.total.Load(), f.holders.Load())
	}
}
