package overload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// newTestAccounts returns accounts of which no two of the domains share one.
func newTestAccounts(t *testing.T, weights map[string]float64, domains ...string) *accounts {
	t.Helper()
	for {
		a, taken := newAccounts(weights), map[int]bool{}
		for _, d := range domains {
			taken[a.of(d, true)] = true
		}
		if len(taken) == len(domains) {
			return a
		}
	}
}

// asking is a domain that asks for calls on connections of its own, and what became of them.
type asking struct {
	domain string
	rate   float64 // calls a second
	work   int     // of each, in perCall parts of a call
	conn   Conn

	due              float64 // calls that are still to be made
	accepted, unread int
	refused          int // once they were read
}

// play has domains ask for a while, in steps of a probe, and returns the work that was accepted a second, by domain, in calls.
func play(a *accounts, share float64, draining bool, steps int, domains ...*asking) (each []float64) {
	return playAnswering(a, 1000, share, draining, steps, domains...)
}

// playAnswering is play by a node that answers that number of calls a second.
func playAnswering(a *accounts, answered, share float64, draining bool, steps int, domains ...*asking) (each []float64) {
	for _, d := range domains {
		d.accepted, d.unread, d.refused = 0, 0, 0
	}
	draw := uint64(0)
	for range steps {
		for _, d := range domains {
			for d.due += d.rate * probeEvery.Seconds(); d.due >= 1; d.due-- {
				draw = (draw + golden) % acceptAll
				d.ask(a, draw)
			}
		}
		a.answered.Add(int64(answered * probeEvery.Seconds() * perCall))
		a.observe(probeEvery)
		a.divide(share, draining)
	}
	for _, d := range domains {
		each = append(each, float64(d.accepted*d.work)/perCall/(float64(steps)*probeEvery.Seconds()))
	}
	return each
}

func (d *asking) ask(a *accounts, draw uint64) {
	account := a.of(d.domain, true)
	if !d.conn.accepts(a, draw) {
		d.unread++
		a.all[d.conn.newest()].unread.Add(1)
		return
	}
	a.count(account, 1, d.work)
	d.conn.remember(account)
	if a.accepts(account, draw) {
		d.accepted++
	} else {
		d.refused++
	}
}

// Each domain has what it asks for, or by its weight an equal part of what the others leave, in work rather than in calls.
func TestWorkIsDividedByDomains(t *testing.T) {
	for _, tc := range []struct {
		name    string
		share   float64
		rates   []float64 // calls a second
		works   []int
		weights map[string]float64
		want    []float64 // work in calls a second
	}{
		{"one asks for little", 1000.0 / 2040, []float64{2000, 40}, []int{16, 16}, nil, []float64{960, 40}},
		{"one asks in batches", 1000.0 / 4040, []float64{4000.0 / 7, 40}, []int{112, 16}, nil, []float64{960, 40}},
		{"both ask for much", 1000.0 / 5000, []float64{4000, 1000}, []int{16, 16}, nil, []float64{500, 500}},
		{"with weights", 1000.0 / 8000, []float64{4000, 4000}, []int{16, 16}, map[string]float64{"1": 3}, []float64{250, 750}},
		{"as much work in more calls", 1000.0 / 8000, []float64{4000, 250}, []int{16, 256}, nil, []float64{500, 500}},
		{"all have time", 1, []float64{2000, 40}, []int{16, 16}, nil, []float64{2000, 40}},
		{"a flood beyond bounds", 1000.0 / 200_100, []float64{200_000, 100}, []int{16, 16}, nil, []float64{200_000 * leastShare, 100}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newTestAccounts(t, tc.weights, "0", "1")
			var domains []*asking
			for i, rate := range tc.rates {
				domains = append(domains, &asking{domain: fmt.Sprint(i), rate: rate, work: tc.works[i]})
			}
			play(a, 1, false, 40, domains...) // late, and refusing nothing yet
			play(a, tc.share, false, 100, domains...)
			got := play(a, tc.share, false, 400, domains...)
			for i, want := range tc.want {
				if math.Abs(got[i]-want) > 0.1*want+1 {
					t.Errorf("domain %d: %.0f, want %.0f", i, got[i], want)
				}
			}
			if flood := domains[0]; tc.share < 1 && (flood.unread == 0 || flood.refused > 0) {
				t.Errorf("%d refused unread of a domain with a connection of its own, %d once they were read", flood.unread, flood.refused)
			}
		})
	}
}

// While the queue drains, domains go on that ask for little, and others have one call of 64 accepted. They go on up to half of what the
// node could decide: what it decides, and one for four calls that it refuses.
func TestDomainsGoOnWhileTheQueueDrains(t *testing.T) {
	for _, tc := range []struct {
		rates, want []float64
	}{
		{[]float64{2000, 40}, []float64{2000 * leastShare, 40}},
		{[]float64{2000, 400}, []float64{2000 * leastShare, 400 * leastShare}},           // 337 would be its part
		{[]float64{2000, 400, 100}, []float64{2000 * leastShare, 400 * leastShare, 100}}, // 347 are left for each of the others
		{[]float64{600}, []float64{600 * leastShare}},
		{[]float64{400}, []float64{400}},
	} {
		a := newTestAccounts(t, nil, "0", "1", "2")
		var domains []*asking
		for i, rate := range tc.rates {
			domains = append(domains, &asking{domain: fmt.Sprint(i), rate: rate, work: perCall})
		}
		play(a, 1, false, 100, domains...)
		play(a, 1, true, 100, domains...)
		got := play(a, 1, true, 400, domains...)
		for i, want := range tc.want {
			if math.Abs(got[i]-want) > 0.1*want+2 {
				t.Errorf("%v: domain %d: %.1f, want %.1f", tc.rates, i, got[i], want)
			}
		}
	}
}

// A flood of calls that are never answered leaves a domain its part, although the node decides nothing else: refusing them takes time that it has. The
// work of what it refuses does not count: that takes no time.
func TestDomainsGoOnDuringCallsInVain(t *testing.T) {
	a := newTestAccounts(t, nil, "0", "1")
	flood, other := &asking{domain: "0", rate: 20_000, work: perCall}, &asking{domain: "1", rate: 500, work: perCall}
	playAnswering(a, 500, 1, false, 100, flood, other)
	playAnswering(a, 500, 1, true, 400, flood, other)
	if got := playAnswering(a, 500, 1, true, 400, flood, other)[1]; got < 495 {
		t.Errorf("%.0f calls a second of 500 are accepted", got)
	}
	batches := &asking{domain: "0", rate: 3000, work: 64 * perCall}
	a = newTestAccounts(t, nil, "0", "1")
	play(a, 1, false, 100, batches, other)
	play(a, 1, true, 400, batches, other)
	if got, most := a.divide(1, true)*a.all[a.of("0", true)].asked, 3000*64*leastShare+1000; got > most {
		t.Errorf("%.0f calls a second are accepted while the queue drains, want %.0f at most", got, most)
	}
}

// A connection that asks for several domains has its calls read as often as the best of them, and each domain has its own part.
func TestConnectionOfSeveralDomains(t *testing.T) {
	a := newTestAccounts(t, nil, "0", "1")
	flood, little := &asking{domain: "0", rate: 4000, work: perCall}, &asking{domain: "1", rate: 50, work: perCall}
	conn := &flood.conn
	random, draw := rand.New(rand.NewPCG(1, 2)), uint64(0)
	count := func(steps int) {
		flood.accepted, flood.refused, flood.unread, little.accepted, little.refused, little.unread = 0, 0, 0, 0, 0, 0
		for range steps {
			for range int((flood.rate + little.rate) * probeEvery.Seconds()) {
				d := flood
				if random.Float64() < little.rate/(little.rate+flood.rate) {
					d = little
				}
				draw = (draw + golden) % acceptAll
				if !conn.accepts(a, draw) {
					d.unread++
					continue
				}
				account := a.of(d.domain, true)
				a.count(account, 1, d.work)
				conn.remember(account)
				if a.accepts(account, draw) {
					d.accepted++
				} else {
					d.refused++
				}
			}
			a.observe(probeEvery)
			a.divide(1000/(flood.rate+little.rate), false)
		}
	}
	count(100)
	count(400) // two seconds
	if little.refused+little.unread > 0 {
		t.Errorf("%d accepted of the domain that asks for little, %d refused, %d unread", little.accepted, little.refused, little.unread)
	}
	if want := 1900.0; math.Abs(float64(flood.accepted)-want) > 0.1*want {
		t.Errorf("%d accepted of the other one, want %.0f", flood.accepted, want)
	}
}

// A connection remembers the last four of its domains.
func TestConnRemembersFourDomains(t *testing.T) {
	a, c := newAccounts(nil), new(Conn)
	if c.newest() != newConns || !c.accepts(a, 1) {
		t.Error("a new connection has asked")
	}
	for i := range a.all {
		a.all[i].below.Store(0)
	}
	accepts := func(account int) bool {
		a.all[account].below.Store(acceptAll)
		defer a.all[account].below.Store(0)
		return c.accepts(a, 1)
	}
	for _, account := range []int{0, 1, 2, 1, 1022, 0, 7} {
		c.remember(account)
		if newest := c.newest(); newest != account {
			t.Errorf("the newest is %d, want %d", newest, account)
		}
	}
	for account, want := range map[int]bool{0: true, 1: true, 2: false, 7: true, 1022: true, 3: false} {
		if got := accepts(account); got != want {
			t.Errorf("account %d: %v", account, got)
		}
	}
	var none *Conn
	if none.remember(1); none.newest() != newConns {
		t.Error("no connection has asked")
	}
}

// Domains with a weight have accounts of their own, domains without rules share one, and where others meet differs by process.
func TestAccountsOfDomains(t *testing.T) {
	a := newAccounts(map[string]float64{"shop": 3, "cart": 0.5})
	shop, cart := a.of("shop", false), a.of("cart", true)
	if shop == cart || shop < firstWeighted || cart < firstWeighted || a.all[shop].weight != 3 || a.all[cart].weight != 0.5 {
		t.Errorf("shop has %d, cart %d", shop, cart)
	}
	if x, y := a.of("invented", false), a.of("another", false); x != withoutRules || y != x {
		t.Errorf("domains without rules have %d and %d", x, y)
	}
	other, moved := newAccounts(nil), 0
	for i := range 100 {
		domain := fmt.Sprint(i)
		account := a.of(domain, true)
		if account < 0 || account >= hashedAccounts || account != a.of(domain, true) {
			t.Fatalf("%s has %d", domain, account)
		}
		if account != other.of(domain, true) {
			moved++
		}
	}
	if moved < 90 {
		t.Errorf("%d of 100 domains have another account in another process", moved)
	}
}

// A call that was counted for another domain first is moved, also if a probe comes in between, and nothing is left of it at a reset.
func TestCountsAreMovedAndReset(t *testing.T) {
	a := newAccounts(nil)
	for range 200 {
		a.count(1, 1, perCall)
		a.observe(probeEvery)
		a.count(1, -1, -perCall)
		a.count(2, 1, 3*perCall)
		a.all[2].unread.Add(2)
		if unread := a.observe(probeEvery); math.Abs(unread-6) > 4 {
			t.Fatalf("calls that were refused unread are worth %v, want 6", unread)
		}
	}
	if got, want := a.all[2].asked, 9/(2*probeEvery.Seconds()); math.Abs(got-want) > 0.05*want || a.all[1].asked > want/50 {
		t.Errorf("%v asked for, want %v; %v before it was moved", got, want, a.all[1].asked)
	}
	a.divide(0.1, false)
	if a.accepts(2, acceptAll-1) {
		t.Error("all accepted")
	}
	a.reset()
	if a.all[2].asked != 0 || !a.accepts(2, acceptAll-1) {
		t.Errorf("after a reset: %v asked for", a.all[2].asked)
	}
}

// What a node pays for each probe while it is late, with demands in all accounts.
func BenchmarkDivide(b *testing.B) {
	a := newAccounts(nil)
	b.ReportAllocs()
	for b.Loop() {
		for i := range a.all {
			a.count(i, 1, perCall+i)
		}
		a.observe(probeEvery)
		a.divide(0.3, false)
	}
}
