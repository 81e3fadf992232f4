package overload

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

const (
	testTarget = 6 * time.Millisecond
	service    = 100 * time.Microsecond // of a call: 10,000 a second
	capacity   = 10_000
)

// processor works off calls and probes in the order in which they come.
type processor struct {
	*Control
	jobs    chan func()
	refusal time.Duration // that it takes to refuse a call

	mu      sync.Mutex
	served  int             // guarded by mu
	refused int             // guarded by mu
	waits   []time.Duration // of those served; guarded by mu
}

// inProcessor calls f with a processor that runs and is controlled.
func inProcessor(t *testing.T, f func(t *testing.T, p *processor)) {
	t.Helper()
	inProcessorWith(t, nil, f)
}

// inProcessorWith is inProcessor with weights of domains.
func inProcessorWith(t *testing.T, weights map[string]float64, f func(t *testing.T, p *processor)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &processor{Control: New(testTarget, weights, prometheus.NewRegistry()), jobs: make(chan func(), 1<<20)}
		ctx, stop := context.WithCancel(t.Context())
		r, w := io.Pipe()
		var parts sync.WaitGroup
		parts.Go(func() {
			for job := range p.jobs {
				job()
			}
		})
		parts.Go(func() {
			p.run(ctx, r, probeWriter{p, w})
			close(p.jobs)
		})
		f(t, p)
		stop()
		parts.Wait()
	})
}

// probeWriter has the processor pass on what is written, in its turn.
type probeWriter struct {
	*processor
	io.Closer
}

func (w probeWriter) Write(b []byte) (int, error) {
	w.jobs <- func() { _, _ = w.Closer.(*io.PipeWriter).Write(b) }
	return len(b), nil
}

// offer has so many calls a second come for a while, and returns how many were served and refused of them.
func (p *processor) offer(rate int, during time.Duration) (served, refused int, waits []time.Duration) {
	p.mu.Lock()
	p.served, p.refused, p.waits = 0, 0, nil
	p.mu.Unlock()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(during); time.Now().Before(end); <-tick.C {
		for range rate / 1000 {
			p.call()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.served, p.refused, p.waits
}

// onConn is the Origin of calls on a connection, of which nothing is remembered.
func onConn(id any) Origin { return func(context.Context) (*Conn, any) { return nil, id } }

func (p *processor) call() {
	came := time.Now()
	ctx, accepted := p.Accept(context.Background(), onConn(nil))
	if !accepted {
		p.mu.Lock()
		p.refused++
		p.mu.Unlock()
		if p.refusal > 0 {
			p.jobs <- func() { time.Sleep(p.refusal) }
		}
		return
	}
	p.jobs <- func() {
		defer p.Ended(ctx)
		wait := time.Since(came)
		time.Sleep(service)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.served++
		p.waits = append(p.waits, wait)
	}
}

// Three times as many calls as the processor can serve: it is kept busy with those that it can serve soon.
func TestOverload(t *testing.T) {
	inProcessor(t, func(t *testing.T, p *processor) {
		p.offer(3*capacity, time.Second) // it takes a moment to find out
		served, refused, waits := p.offer(3*capacity, 5*time.Second)
		if served < 5*capacity*8/10 || refused < 5*capacity*15/10 {
			t.Errorf("%d served and %d refused of %d", served, refused, 5*3*capacity)
		}
		long := 0
		for _, w := range waits {
			if w > 4*testTarget {
				long++
			}
		}
		if long > len(waits)/50 {
			t.Errorf("%d of %d calls waited for more than %v", long, len(waits), 4*testTarget)
		}
		if !p.Busy() || testutil.ToFloat64(p.Control.refused) == 0 {
			t.Errorf("busy %v, %v counted as refused", p.Busy(), testutil.ToFloat64(p.Control.refused))
		}
		p.offer(capacity/2, 800*time.Millisecond) // the load falls
		if _, refused, _ := p.offer(capacity/2, time.Second); refused > 0 {
			t.Errorf("%d are refused of what the processor has time for", refused)
		}
		time.Sleep(time.Second)
		if p.Busy() {
			t.Error("busy although there is nothing to do")
		}
	})
}

// So many calls that the processor has hardly time to refuse them: it decides few, and knows that it can decide more once these calls stop.
func TestRefusalsTakeTime(t *testing.T) {
	inProcessor(t, func(t *testing.T, p *processor) {
		p.refusal = service / 4
		p.offer(4*capacity, 20*time.Second)
		p.offer(capacity/7, 3*time.Second) // the load falls, and what waits is worked off
		if _, refused, _ := p.offer(capacity/7, 3*time.Second); refused > 0 {
			t.Errorf("%d are refused of what the processor has time for", refused)
		}
	})
}

// A load that begins at once is refused before its calls have waited for long.
func TestOverloadIsFoundOutSoon(t *testing.T) {
	inProcessor(t, func(t *testing.T, p *processor) {
		p.offer(capacity/2, time.Second)
		if p.offer(3*capacity, 30*time.Millisecond); !p.Busy() {
			t.Error("not busy after 30 ms")
		}
		if _, refused, _ := p.offer(3*capacity, 400*time.Millisecond); refused == 0 {
			t.Error("none refused after 430 ms")
		}
	})
}

// All calls that the processor has time for are accepted.
func TestNoOverload(t *testing.T) {
	for _, tc := range []struct {
		name   string
		rate   int
		pause  time.Duration // of the processor, over and over
		every  time.Duration
		during time.Duration
	}{
		{"idle", 0, 0, time.Second, 2 * time.Second},
		{"half of what it can serve", capacity / 2, 0, time.Second, 2 * time.Second},
		{"most of what it can serve", capacity * 9 / 10, 0, time.Second, 2 * time.Second},
		{"it is halted now and then", capacity / 2, 80 * time.Millisecond, time.Second, 5 * time.Second},
		{"others take the processor, and few wait", 1000, 20 * time.Millisecond, 30 * time.Millisecond, 5 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inProcessor(t, func(t *testing.T, p *processor) {
				pauses := time.NewTicker(tc.every)
				ended := make(chan struct{})
				var halting sync.WaitGroup
				halting.Go(func() {
					for {
						select {
						case <-ended:
							return
						case <-pauses.C:
							p.jobs <- func() { time.Sleep(tc.pause) }
						}
					}
				})
				_, refused, _ := p.offer(tc.rate, tc.during)
				close(ended)
				halting.Wait()
				if refused > 0 {
					t.Errorf("%d refused", refused)
				}
			})
		})
	}
}

// Callers that wait for each answer before they ask again are no overload while there are few of them, however late others make the
// node.
func TestCallersThatWait(t *testing.T) {
	for _, tc := range []struct {
		callers, conns int
		refuses        bool
	}{{1, 1, false}, {24, 1, false}, {24, 24, false}, {96, 2, true}, {96, 96, true}} {
		t.Run(fmt.Sprintf("%d callers on %d connections", tc.callers, tc.conns), func(t *testing.T) {
			inProcessor(t, func(t *testing.T, p *processor) {
				ctx, stop := context.WithCancel(t.Context())
				var asking sync.WaitGroup
				for i := range tc.callers {
					asking.Go(func() { p.askInTurn(ctx, i%tc.conns) })
				}
				asking.Go(func() { // others have the processor for so long that each probe is late
					for ctx.Err() == nil {
						p.jobs <- func() { time.Sleep(56 * time.Millisecond) }
						time.Sleep(60 * time.Millisecond)
					}
				})
				time.Sleep(5 * time.Second)
				stop()
				asking.Wait()
				if p.served < 1000 || (p.refused > 0) != tc.refuses {
					t.Errorf("%d served, %d refused", p.served, p.refused)
				}
			})
		})
	}
}

// askInTurn makes one call after the other on a connection.
func (p *processor) askInTurn(ctx context.Context, conn int) {
	for ctx.Err() == nil {
		call, accepted := p.Accept(ctx, onConn(conn))
		if !accepted {
			p.mu.Lock()
			p.refused++
			p.mu.Unlock()
			time.Sleep(time.Millisecond)
			continue
		}
		answered := make(chan struct{})
		p.jobs <- func() {
			time.Sleep(service)
			p.Ended(call)
			close(answered)
		}
		<-answered
		p.mu.Lock()
		p.served++
		p.mu.Unlock()
	}
}

// A flood of calls that their callers have given up by the time that they are read is an overload, though no two of a connection are seen at once.
func TestCallersThatGiveUp(t *testing.T) {
	const (
		patience = 100 * time.Millisecond
		read     = service / 10
	)
	inProcessor(t, func(t *testing.T, p *processor) {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for ms := range 4000 {
			for i := range 2 * capacity / 1000 {
				p.jobs <- func() { p.readCall(t, i%16, ms, patience, read) }
			}
			<-tick.C
		}
		time.Sleep(patience) // of the last
		p.mu.Lock()
		defer p.mu.Unlock()
		if all := p.served + p.refused + len(p.waits); p.refused < all/4 || p.served < all/10 {
			t.Errorf("%d served, %d refused, %d in vain", p.served, p.refused, len(p.waits))
		}
	})
}

// readCall reads a call that has come in that millisecond of the run, and answers it if its caller still waits. Else the next that is read says that
// the caller has gone, and the work was in vain.
func (p *processor) readCall(t *testing.T, conn, came int, patience, read time.Duration) {
	waited := time.Since(p.started) - time.Duration(came)*time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	time.Sleep(read)
	ctx, accepted := p.Accept(ctx, onConn(conn))
	if accepted {
		time.Sleep(service)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !accepted:
		p.refused++
	case waited > patience:
		p.waits = append(p.waits, waited)
	default:
		p.served++
		p.Ended(ctx)
	}
}

// A late node is busy if many checks wait, in however many calls, though it refuses only if many calls do.
func TestBusyWithFewLargeCalls(t *testing.T) {
	for _, tc := range []struct {
		checks int // of each of four calls
		busy   bool
	}{{1, false}, {113, false}, {129, true}, {1000, true}} {
		c, now := New(testTarget, nil, prometheus.NewRegistry()), time.Now()
		c.started = now.Add(-time.Minute)
		s := newShare(testTarget, now)
		calls := func() {
			for range 4 {
				ctx, accepted := c.Accept(t.Context(), onConn(nil))
				if !accepted || !c.Admit(ctx, noRules{}, "d", tc.checks) {
					t.Fatal("a call was refused")
				}
			}
		}
		calls()
		c.due.Store(int64(now.Sub(c.started) - 2*testTarget)) // a probe under way is late
		during := c.Busy()
		c.observe(&s, now.Add(-2*testTarget), now)
		if after := c.Busy(); during != tc.busy || after != tc.busy {
			t.Errorf("%d checks of each call: busy %v while it is late, %v after it was; want %v", tc.checks, during, after, tc.busy)
		}
	}
}

// Accepted calls are spread evenly at any share.
func TestAcceptedCallsAreSpreadEvenly(t *testing.T) {
	for _, share := range []float64{leastShare, 0.1, 1.0 / 3, 0.5, 0.9} {
		c := New(testTarget, nil, prometheus.NewRegistry())
		c.dividing.Store(true)
		c.accounts.all[newConns].below.Store(uint64(share * acceptAll))
		const calls = 10_000
		accepted, gap, longest := 0, 0, 0
		for range calls {
			gap++
			if _, ok := c.Accept(t.Context(), onConn(nil)); ok {
				accepted++
				longest = max(longest, gap)
				gap = 0
			}
		}
		if want := share * calls; float64(accepted) < want-20 || float64(accepted) > want+20 || float64(longest) > 3/share+1 {
			t.Errorf("share %v: %d of %d accepted, the longest gap %d", share, accepted, calls, longest)
		}
	}
}

// The kernel passes probes on until the context ends.
func TestProbesThroughTheKernel(t *testing.T) {
	c := New(time.Hour, nil, prometheus.NewRegistry())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	for c.lateness.Load() == 0 && t.Context().Err() == nil {
		c.Accept(ctx, onConn(nil))
	}
	stop()
	if err := <-ended; err != nil || c.Busy() || testutil.ToFloat64(c.refused) > 0 {
		t.Errorf("%v, busy %v, %v refused", err, c.Busy(), testutil.ToFloat64(c.refused))
	}
}

// load is what a domain asks the processor for.
type load struct {
	domain string
	rate   int // calls a second
	checks int // of each call
	// invalid calls are refused by themselves when they are read. Newly connected ones have a connection each. Those that are read in any
	// case are messages on streams, and calls of Envoy.
	invalid, newlyConnected, read bool

	conns []Conn // of its own if that is nil

	mu                   sync.Mutex
	asked, refused, late int // guarded by mu
}

// rulesOf are the Rules of a node with these domains.
type rulesOf []string

func (r rulesOf) HasDomain(domain string) bool {
	return slices.Contains(r, domain)
}

const conns = 8 // of each load

// together has the processor asked by all loads for a while, and forgets what became of calls before.
func (p *processor) together(during time.Duration, rules Rules, loads ...*load) {
	var asking sync.WaitGroup
	for _, l := range loads {
		l.mu.Lock()
		l.asked, l.refused, l.late = 0, 0, 0
		l.mu.Unlock()
		asking.Go(func() {
			remembered := l.conns
			if remembered == nil {
				remembered = make([]Conn, conns)
			}
			due := 0.0
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for end, i := time.Now().Add(during), 0; time.Now().Before(end); <-tick.C {
				for due += float64(l.rate) / 1000; due >= 1; due-- {
					conn := &remembered[i%len(remembered)]
					if l.newlyConnected {
						conn = new(Conn)
					}
					p.ask(l, rules, conn)
					i++
				}
			}
		})
	}
	asking.Wait()
}

// ask makes one call, which the processor reads in its turn.
func (p *processor) ask(l *load, rules Rules, conn *Conn) {
	count := func(n *int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		*n++
	}
	count(&l.asked)
	from := func(context.Context) (*Conn, any) { return conn, conn }
	var ctx context.Context
	if l.read {
		ctx = p.Began(context.Background(), from)
	} else {
		var accepted bool
		if ctx, accepted = p.Accept(context.Background(), from); !accepted {
			count(&l.refused)
			return
		}
	}
	came := time.Now()
	p.jobs <- func() {
		defer p.Ended(ctx)
		if time.Since(came) > 4*testTarget {
			count(&l.late)
		}
		switch {
		case l.invalid:
			time.Sleep(service)
			return
		case !p.Admit(ctx, rules, l.domain, l.checks):
			time.Sleep(service / 5)
			count(&l.refused)
			return
		}
		time.Sleep(service * time.Duration(perCall+l.checks-1) / perCall)
	}
}

// shares are those of the calls that were refused, and that were read late.
func (l *load) shares() (refused, late float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return float64(l.refused) / float64(l.asked), float64(l.late) / float64(l.asked)
}

// One domain's flood does not take another's checks, however it asks.
func TestFloodOfOneDomain(t *testing.T) {
	for _, tc := range []struct {
		name  string
		flood *load
	}{
		{"unary", &load{domain: "flood", rate: 2 * capacity, checks: 1}},
		{"batches", &load{domain: "flood", rate: 4 * capacity / 7, checks: 97}},
		{"read in any case", &load{domain: "flood", rate: 2 * capacity, checks: 1, read: true}},
		{"on new connections", &load{domain: "flood", rate: 3 * capacity, checks: 1, newlyConnected: true}},
		{"invalid", &load{domain: "flood", rate: 3 * capacity, checks: 1, invalid: true}},
		{"on the connections of the other domain", &load{domain: "flood", rate: 2 * capacity, checks: 1, conns: make([]Conn, conns)}},
		{"in a domain without rules", &load{domain: "invented", rate: 3 * capacity, checks: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inProcessor(t, func(t *testing.T, p *processor) {
				rules := rulesOf{"flood", "little"}
				for p.accounts.of("flood", true) == p.accounts.of(rules[1], true) {
					rules[1] += "x"
				}
				little := &load{domain: rules[1], rate: capacity / 25, checks: 1, conns: tc.flood.conns}
				p.together(time.Second, rules, little)
				p.together(6*time.Second, rules, tc.flood, little)
				flood, _ := tc.flood.shares()
				refused, late := little.shares()
				t.Logf("refused: %.3f of the flood, %.4f of the other domain, of which %.3f were late", flood, refused, late)
				if refused > 0.06 || late > 0.2 {
					t.Errorf("%.3f of the other domain's calls are refused, %.3f late", refused, late)
				}
				if flood < 0.3 {
					t.Errorf("%.3f of the flood are refused", flood)
				}
				time.Sleep(2 * time.Second)
				if p.dividing.Load() {
					t.Error("calls are counted by domain although there is nothing to do")
				}
			})
		})
	}
}

// Domains that ask for more than there is time for get parts by their weights.
func TestWeightsOfDomains(t *testing.T) {
	inProcessorWith(t, map[string]float64{"one": 1, "three": 3}, func(t *testing.T, p *processor) {
		one, three := &load{domain: "one", rate: 2 * capacity, checks: 1}, &load{domain: "three", rate: 3 * capacity, checks: 1}
		p.together(time.Second, rulesOf{}, one, three)
		p.together(6*time.Second, rulesOf{}, one, three)
		a, _ := one.shares()
		b, _ := three.shares()
		decided, ofThree := (1-a)*float64(one.asked), (1-b)*float64(three.asked)
		t.Logf("%.0f and %.0f were accepted", decided, ofThree)
		if ratio := ofThree / decided; ratio < 2.3 || ratio > 3.7 || decided+ofThree < 6*capacity*7/10 {
			t.Errorf("%.0f and %.0f were accepted, want three times as many", decided, ofThree)
		}
	})
}

// A call counts once, for the domain that it asks for, though its connection has asked for another one last.
func TestCallsCountForTheirDomain(t *testing.T) {
	c, conn := New(testTarget, map[string]float64{"a": 1, "b": 1}, prometheus.NewRegistry()), new(Conn)
	c.dividing.Store(true)
	a, b := c.accounts.of("a", true), c.accounts.of("b", true)
	conn.remember(a)
	from := func(context.Context) (*Conn, any) { return conn, conn }
	for _, domain := range []string{"b", "a", "a"} {
		ctx, accepted := c.Accept(t.Context(), from)
		if !accepted || !c.Admit(ctx, rulesOf{}, domain, 33) {
			t.Fatal("refused")
		}
		c.Ended(ctx)
	}
	for account, want := range map[int]int64{a: 2, b: 1} {
		if one := &c.accounts.all[account]; one.calls.Load() != want || one.work.Load() != want*(perCall+32) {
			t.Errorf("account %d: %d calls of work %d, want %d", account, one.calls.Load(), one.work.Load(), want)
		}
	}
	if got := c.accounts.answered.Load(); got != 3*(perCall+32) || c.accepted.Load() != 3 {
		t.Errorf("work %d answered of %d calls", got, c.accepted.Load())
	}
	c.accounts.all[b].below.Store(0)
	ctx, accepted := c.Accept(t.Context(), from)
	if !accepted || c.Admit(ctx, rulesOf{}, "b", 33) || c.accepted.Load() != 3 || c.further.Load() != 96 || c.turnedAway.Load() != perCall+32 {
		t.Errorf("%d calls, %d further checks and work %d refused", c.accepted.Load(), c.further.Load(), c.turnedAway.Load())
	}
	if c.Ended(ctx); c.accounts.answered.Load() != 3*(perCall+32) {
		t.Error("a call was answered that was refused")
	}
}

// A call whose caller goes before it is answered counts as long as the node is late, and is forgotten, also if the node is in time when the others are
// answered.
func TestCallsWhoseCallersGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, conn := New(testTarget, nil, prometheus.NewRegistry()), new(Conn)
		c.dividing.Store(true)
		c.callers.watch(true)
		from := func(context.Context) (*Conn, any) { return conn, conn }
		underWay := func() int { return c.callers.conns[conn].underWay }
		goes, gone := context.WithCancel(t.Context())
		c.Began(goes, from)
		answered := c.Began(goes, from)
		stays := c.Began(t.Context(), from)
		if underWay() != 3 {
			t.Fatalf("%d calls are under way, want 3", underWay())
		}
		c.Ended(answered)
		gone()
		synctest.Wait()
		if underWay() != 2 || c.callers.begun.Load() != 1 {
			t.Errorf("%d calls are under way, %d begun, want the one whose caller waits, and the one whose caller has gone", underWay(), c.callers.begun.Load())
		}
		c.dividing.Store(false)
		c.Ended(stays)
		if underWay() != 1 || c.callers.begun.Load() != 0 {
			t.Errorf("%d calls are under way, %d begun, want the one whose caller has gone", underWay(), c.callers.begun.Load())
		}
	})
}

// What a call pays of which nothing is refused: while the node is in time, while it is late, and on a connection that is remembered.
func BenchmarkAccept(b *testing.B) {
	for name, dividing := range map[string]bool{"in time": false, "late": true} {
		b.Run(name, func(b *testing.B) {
			c, conn := New(testTarget, nil, prometheus.NewRegistry()), new(Conn)
			c.dividing.Store(dividing)
			from := Origin(func(context.Context) (*Conn, any) { return conn, nil })
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					ctx, _ := c.Accept(context.Background(), from)
					c.Admit(ctx, noRules{}, "d", 1)
					c.Ended(ctx)
				}
			})
		})
	}
}

// What an overloaded node pays to refuse a call, apart from its answer.
func BenchmarkRefuse(b *testing.B) {
	c, conn := New(testTarget, nil, prometheus.NewRegistry()), new(Conn)
	c.dividing.Store(true)
	for i := range 4 {
		conn.remember(i)
		c.accounts.all[i].below.Store(0)
	}
	from := Origin(func(context.Context) (*Conn, any) { return conn, nil })
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c.Accept(context.Background(), from)
		}
	})
}

// noRules are the Rules of a node where all domains share an account.
type noRules struct{}

func (noRules) HasDomain(string) bool { return false }

// What a node pays 200 times a second.
func BenchmarkProbe(b *testing.B) {
	r, w, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	back := make(chan time.Time)
	go func() {
		for one := make([]byte, 1); ; {
			if _, err := r.Read(one); err != nil {
				close(back)
				return
			}
			back <- time.Now()
		}
	}()
	c := New(testTarget, nil, prometheus.NewRegistry())
	s := newShare(testTarget, time.Now())
	for b.Loop() {
		if _, err := w.Write([]byte{1}); err != nil {
			b.Fatal(err)
		}
		c.observe(&s, time.Now(), <-back)
	}
}

// A call that was admitted, and is refused because others have no time, is no work that the node has done.
func TestTurnAway(t *testing.T) {
	for _, dividing := range []bool{false, true} {
		c := New(time.Millisecond, nil, prometheus.NewRegistry())
		c.dividing.Store(dividing)
		ctx, accepted := c.Accept(t.Context(), onConn(nil))
		if !accepted || !c.Admit(ctx, noRules{}, "d", 1000) {
			t.Fatal("not admitted")
		}
		c.TurnAway(ctx, 1000)
		c.Ended(ctx)
		if c.accepted.Load() != 0 || c.further.Load() != 0 || c.turnedAway.Load() != perCall+999 || c.accounts.answered.Load() != 0 || testutil.ToFloat64(c.refused) != 1 {
			t.Errorf("dividing %v: %d accepted, %d further, %d turned away, %d answered, %v refused", dividing,
				c.accepted.Load(), c.further.Load(), c.turnedAway.Load(), c.accounts.answered.Load(), testutil.ToFloat64(c.refused))
		}
	}
}
