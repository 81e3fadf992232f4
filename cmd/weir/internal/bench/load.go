package bench

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Load says what to ask, how often and for how long. Every field is required, unless it
// says otherwise.
type Load struct {
	Mode    string // of the connections, for the report
	Conns   []Conn // that the callers share
	Keys    *Keys
	Batch   int // checks per call; 0 means one, and not as a batch
	Callers int // calls under way at once, at most
	Window  int // of these on each stream, for the report; 0: there are none
	// Rate is the checks per second of an open loop, in which calls are sent by the clock.
	// In a closed loop, of rate 0, a caller sends when it has its last answer.
	Rate     int64
	Duration time.Duration // after which no call is sent
	Timeout  time.Duration // of a call; 0: the connections see to that themselves
	PIDs     []int         // the servers that run on this machine, to measure; may be empty
	// Timed has a caller of a closed loop measure one of so many calls only, where reading the
	// clock takes as long as a call; 0 means each.
	Timed int
}

// talliesPerProcessor is how many tallies there are, so that callers seldom wait for each
// other to count.
const talliesPerProcessor = 4

// Run makes the load until its duration is over or ctx ends. Calls under way then get
// their time. It calls progress, unless nil, every second. An error says that a server
// cannot be measured, and then nothing was asked.
//
// The latency of a call in an open loop counts from the instant at which it should have
// been sent. Counting from when it was would leave out those that a stalled server keeps
// from being sent, and so the worst ("coordinated omission", Gil Tene).
func (l *Load) Run(ctx context.Context, progress func(Progress)) (Report, error) {
	processes, err := measureProcesses(l.PIDs)
	if err != nil {
		return Report{}, err
	}
	r := &run{Load: l, perCall: max(1, l.Batch), tallies: make([]*tally, min(l.Callers, talliesPerProcessor*runtime.GOMAXPROCS(0)))}
	if len(l.PIDs) > 0 {
		r.seen = newSeen(l.Keys.n)
	}
	for i := range r.tallies {
		r.tallies[i] = newTally()
	}
	cpu := ownCPU()
	ctx, cancel := context.WithTimeout(ctx, l.Duration)
	defer cancel()
	r.started = time.Now()
	var callers sync.WaitGroup
	for i := range l.Callers {
		callers.Go(func() { r.call(ctx, i) })
	}
	r.tell(ctx, progress)
	sending := min(time.Since(r.started), l.Duration)
	callers.Wait()
	elapsed := time.Since(r.started)
	return r.report(sending, elapsed, ownCPU()-cpu, processes), nil
}

// run is a Load that runs.
type run struct {
	*Load
	perCall int      // checks
	tallies []*tally // which the callers share
	seen    *seen    // nil if no progress is wanted
	started time.Time
	turns   atomic.Int64 // of an open loop, given out
}

// call sends one call after the other until ctx ends.
func (r *run) call(ctx context.Context, caller int) {
	conn, tally := r.Conns[caller%len(r.Conns)], r.tallies[caller%len(r.tallies)]
	draw := r.Keys.Draw(caller, r.Callers)
	keys := make([]uint64, r.perCall)
	ask := func(calls *Counts) {
		for i := range keys {
			keys[i] = draw()
			r.seen.add(keys[i])
		}
		answers, err := r.ask(ctx, conn, keys)
		calls.note(r.perCall, answers, err)
	}
	for {
		due, ok := r.await(ctx)
		if !ok {
			return
		}
		var calls Counts
		sent := time.Now()
		ask(&calls)
		latency := time.Since(due)
		for i := 1; i < r.Timed && ctx.Err() == nil; i++ {
			ask(&calls)
		}
		tally.add(sent.Sub(due), latency, calls)
	}
}

// await waits for the caller's next turn. It returns the instant for which that was set,
// and false if no more come.
func (r *run) await(ctx context.Context) (due time.Time, ok bool) {
	if r.Rate == 0 {
		return time.Now(), ctx.Err() == nil
	}
	after := r.due(r.turns.Add(1) - 1)
	if after >= r.Duration {
		return due, false
	}
	due = r.started.Add(after)
	if wait := time.Until(due); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return due, ctx.Err() == nil
}

// due is how long after the start a turn comes. Seconds and their rest are multiplied
// apart, so that nothing overflows.
func (r *run) due(turn int64) time.Duration {
	checks := turn * int64(r.perCall)
	second := int64(time.Second)
	return time.Duration(checks/r.Rate*second + checks%r.Rate*second/r.Rate)
}

// dueChecks is how many checks should have been sent so long after the start.
func (r *run) dueChecks(after time.Duration) int64 {
	second := int64(time.Second)
	checks := int64(after)/second*r.Rate + int64(after)%second*r.Rate/second
	return checks / int64(r.perCall) * int64(r.perCall)
}

// ask makes one call. It ends by its time-out, and not with ctx.
func (r *run) ask(ctx context.Context, conn Conn, keys []uint64) (Answers, error) {
	if r.Timeout == 0 {
		return conn.Ask(context.Background(), keys)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.Timeout)
	defer cancel()
	return conn.Ask(ctx, keys)
}

func (r *run) counts() (sum Counts) {
	for _, t := range r.tallies {
		sum.add(t.read())
	}
	return sum
}

// report is made when no caller runs any more.
func (r *run) report(sending, elapsed, cpu time.Duration, processes []process) Report {
	latency, delay := newHistogram(), newHistogram()
	for _, t := range r.tallies {
		latency.merge(t.latency)
		delay.merge(t.delay)
	}
	report := Report{
		Counts: r.counts(), Mode: r.Mode, Batch: r.Batch, Window: r.Window, Callers: r.Callers, Connections: len(r.Conns), Rate: r.Rate,
		Keys: int64(r.Keys.n), Distribution: r.Keys.distribution, Timed: r.Timed,
		Seconds: elapsed.Seconds(), Latency: latency.percentiles(),
	}
	report.ChecksPerSecond = ratio(float64(report.Checks), elapsed.Seconds())
	if r.Rate > 0 {
		percentiles := delay.percentiles()
		report.SendDelay = &percentiles
		report.Unsent = max(0, r.dueChecks(sending)-report.Checks-report.Errors)
	}
	report.ClientCPU = ratio(micros(cpu), float64(report.Checks))
	report.measure(processes, r.seen)
	return report
}

// ratio is a/b, or 0 if there is no b.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
