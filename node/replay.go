package node

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/backtest"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/ui"
)

// Bounds of a replay for the dashboard. One at a time runs on a node.
const (
	maxReplayBytes  = 512 << 20 // of a log, unpacked
	maxReplayMemory = 128 << 20 // of counters and lists of keys
	replayTimeout   = 45 * time.Second
	replayPiece     = 64 << 10 // bytes of a log that are replayed without a pause
	maxReplayTop    = 10       // keys of each list
)

// replayer replays logs for the dashboard.
type replayer struct {
	state     func() *rules.State
	decisions func(ctx context.Context, since time.Time) (*hourLog, error)
	running   chan struct{} // has room for one
	most      int64         // bytes of a log, unpacked
}

func newReplayer(state func() *rules.State, decisions func(ctx context.Context, since time.Time) (*hourLog, error)) *replayer {
	return &replayer{state: state, decisions: decisions, running: make(chan struct{}, 1), most: maxReplayBytes}
}

// Replay implements ui.Config.Backtest.
func (p *replayer) Replay(ctx context.Context, b ui.Backtest) (_ *ui.BacktestResult, err error) {
	select {
	case p.running <- struct{}{}:
		defer func() { <-p.running }()
	default:
		return nil, status.Error(codes.ResourceExhausted, "this node replays another log; try again when that has ended")
	}
	ctx, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	begun := time.Now()
	var hour *hourLog
	if b.Log == nil {
		if hour, err = p.decisions(ctx, begun.Add(-time.Hour)); err != nil {
			return nil, err
		}
		defer func() { _ = hour.Close() }() // it is read only
		b.Log, b.Format, b.Map = hour, backtest.Decisions, nil
	}
	run, needed, notes, err := p.begin(b)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	log, err := p.unpacked(ctx, b.Log)
	if err == nil {
		err = run.Read("log", log)
	}
	if err != nil {
		return nil, replayError(ctx, err)
	}
	found := run.Result()
	for attribute := range found.Missing {
		if !needed[attribute] { // a field of the format that no rule asks about
			delete(found.Missing, attribute)
		}
	}
	result := resultOf(found)
	if hour != nil {
		notes = append(notes, hour.notes()...)
	}
	result.Notes, result.Took = append(notes, result.Notes...), time.Since(begun)
	return result, nil
}

// begin returns a run of the tried rules against those in force, and the attributes that these rules or the caller name.
func (p *replayer) begin(b ui.Backtest) (_ *backtest.Run, needed map[string]bool, notes []string, err error) {
	c := backtest.Config{Format: b.Format, Domain: b.Domain, MaxBytes: maxReplayMemory, Against: p.state().Set}
	if b.Format != backtest.Decisions {
		var described []string
		if c.Against, described, err = c.Against.WithoutDescriptors(); err != nil {
			return nil, nil, nil, err
		}
		for _, domain := range described {
			notes = append(notes, fmt.Sprintf("Descriptors of Envoy in the domain %s are left out: only a decision log has the calls of Envoy.", domain))
		}
	}
	c.Rules = c.Against
	needed = make(map[string]bool)
	need(needed, c.Against.Documents())
	if strings.TrimSpace(b.Rules) != "" {
		how := c.Against.Options()
		tried, _, err := how.ParseDocuments("rules", []byte(b.Rules))
		if err != nil {
			return nil, nil, nil, err
		}
		all, err := rules.Apply(tried, false)(&rules.State{Set: c.Against})
		if err != nil {
			return nil, nil, nil, err
		}
		need(needed, all)
		if c.Rules, err = how.Compile("rules", all); err != nil {
			return nil, nil, nil, err
		}
	}
	for _, text := range b.Map {
		m, err := backtest.ParseMapping(text)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("map: %w", err)
		}
		needed[m.Attribute] = true
		c.Map = append(c.Map, m)
	}
	run, err := backtest.New(c)
	return run, needed, notes, err
}

// need adds the attributes that rules name.
func need(all map[string]bool, docs []rules.Document) {
	for i := range docs {
		for j := range docs[i].Rules {
			r := &docs[i].Rules[j]
			for name := range r.When {
				all[name] = true
			}
			for _, set := range r.Per {
				for _, name := range set {
					all[name] = true
				}
			}
			all[r.Cost] = true
		}
	}
}

// Why a log is not replayed to its end.
var (
	errLongLog  = fmt.Errorf("the log has more than %d MiB unpacked: replay it with weir simulate", maxReplayBytes>>20)
	errTwoZips  = errors.New("the log is compressed twice")
	gzipsHeader = []byte{0x1f, 0x8b}
)

// replayError gives an error of reading a log its status code. One about the size of the request stays what it is.
func replayError(ctx context.Context, err error) error {
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return err
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return status.Errorf(codes.DeadlineExceeded, "the replay takes more than %v: use weir simulate, or a shorter log", replayTimeout)
	case ctx.Err() != nil:
		return status.Error(codes.Canceled, "the replay was cancelled")
	case errors.Is(err, backtest.ErrTooLarge):
		return status.Errorf(codes.InvalidArgument, "%v: use weir simulate, or a log with fewer keys", err)
	}
	return status.Error(codes.InvalidArgument, err.Error())
}

// unpacked returns the lines of a log, which may be compressed with gzip.
func (p *replayer) unpacked(ctx context.Context, log io.Reader) (io.Reader, error) {
	in := bufio.NewReaderSize(log, replayPiece)
	if head, _ := in.Peek(2); bytes.Equal(head, gzipsHeader) {
		unzip, err := gzip.NewReader(in)
		if err != nil {
			return nil, err
		}
		in = bufio.NewReaderSize(unzip, replayPiece)
		if head, _ := in.Peek(2); bytes.Equal(head, gzipsHeader) {
			return nil, errTwoZips // the replay would unpack it once more
		}
	}
	return &pacedReader{ctx: ctx.Done(), cause: ctx.Err, from: in, left: p.most}, nil
}

// pacedReader reads a log in pieces. Between two of them it pauses as long as the last one took to replay, so that a replay has
// half a processor at most. It ends with a context.
type pacedReader struct {
	ctx   <-chan struct{}
	cause func() error
	from  io.Reader
	left  int64     // bytes that may follow
	given time.Time // when the last piece was; zero before the first
}

func (p *pacedReader) Read(b []byte) (int, error) {
	if !p.given.IsZero() {
		pause := time.NewTimer(time.Since(p.given))
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-p.ctx:
		}
	}
	if err := p.cause(); err != nil {
		return 0, err
	}
	n, err := p.from.Read(b[:min(len(b), replayPiece)])
	if p.left -= int64(n); p.left < 0 {
		return 0, errLongLog
	}
	p.given = time.Now()
	return n, err
}

// resultOf returns what the dashboard shows of a result.
func resultOf(r *backtest.Result) *ui.BacktestResult {
	res := &ui.BacktestResult{
		Lines: r.Lines, Allowed: r.Allowed, Denied: r.Denied, DeniedNow: r.Against.Denied, NewlyDenied: r.Against.NewlyDenied, NewlyAllowed: r.Against.NewlyAllowed,
		NoRule: r.NoRule, Unlimited: r.Unlimited, First: time.Unix(r.First, 0), Last: time.Unix(r.Last, 0), Step: time.Duration(r.Step) * time.Second, Notes: notesOf(r),
	}
	for _, m := range r.Over {
		res.Moments = append(res.Moments, ui.BacktestMoment{At: time.Unix(m.At, 0), Checks: m.Checks, Denied: m.Denied, DeniedNow: m.Against})
	}
	now := make(map[[2]string]*backtest.RuleResult)
	for i := range r.Against.Rules {
		now[[2]string{r.Against.Rules[i].Domain, r.Against.Rules[i].Rule}] = &r.Against.Rules[i]
	}
	for i := range r.Rules {
		tried := &r.Rules[i]
		one := ui.BacktestRule{
			Domain: tried.Domain, ID: tried.Rule, Lines: tried.Lines, Denied: tried.Denied, WouldDeny: tried.WouldDeny, Keys: tried.Keys, DeniedKeys: tried.DeniedKeys,
		}
		if before := now[[2]string{tried.Domain, tried.Rule}]; before != nil {
			one.DeniedNow = before.Denied
		}
		for _, k := range tried.Top[:min(len(tried.Top), maxReplayTop)] {
			one.Top = append(one.Top, ui.BacktestKey{Key: k.Key, Count: k.Denied})
		}
		if len(tried.Limits) > 0 { // the first one stands for all
			l := &tried.Limits[0]
			one.Limit, one.Above, one.Below = fmt.Sprint(l.Limit), nearKeys(l.Above), nearKeys(l.Below)
		}
		res.Rules = append(res.Rules, one)
	}
	return res
}

func nearKeys(keys []backtest.NearKey) (near []ui.BacktestKey) {
	for _, k := range keys[:min(len(keys), maxReplayTop)] {
		near = append(near, ui.BacktestKey{Key: k.Key, Count: k.Peak})
	}
	return near
}

// skippedWords say why lines were not decided.
var skippedWords = map[string]string{
	"broken": "not of the format", "no_time": "without a time that can be read", "hashed": "with hashes in place of values",
	"not_decided": "not decided by a node", "refused": "which a node would refuse with an error",
	"ahead": "more than a day later than most of those after it",
}

// inexactWords say why the log has not all that it takes to decide a line.
var inexactWords = map[string]string{
	"lent": "tokens were lent to nodes", "provisional": "a standby has decided", "undecided": "an owner may have counted a check that it did not answer in time", "token_lease": "tokens were lent to clients",
	"returned": "Envoy’s API has given tokens back", "not_utf8": "a value is not UTF-8",
}

func linesOf(n int64) string {
	if n == 1 {
		return "1 line"
	}
	return fmt.Sprintf("%d lines", n)
}

// notesOf says what was wrong with a log.
func notesOf(r *backtest.Result) (notes []string) {
	for _, why := range slices.Sorted(maps.Keys(r.Skipped)) {
		note := fmt.Sprintf("Left out: %s, %s", linesOf(r.Skipped[why]), cmp.Or(skippedWords[why], why))
		if first := r.FirstSkipped[why]; first != "" {
			note += "; the first is " + first
		}
		notes = append(notes, note+".")
	}
	for _, attribute := range slices.Sorted(maps.Keys(r.Missing)) {
		notes = append(notes, fmt.Sprintf("Without %s: %s.", attribute, linesOf(r.Missing[attribute])))
	}
	if r.Backward > 0 {
		notes = append(notes, fmt.Sprintf("Earlier than a line before, by %v s at most: %s.", r.WorstBackward, linesOf(r.Backward)))
	}
	for _, source := range slices.Sorted(maps.Keys(r.Differing)) {
		notes = append(notes, fmt.Sprintf("Not as in the log, where the source of the decision is %s: %s.", source, linesOf(r.Differing[source])))
	}
	for _, why := range slices.Sorted(maps.Keys(r.Inexact)) {
		notes = append(notes, fmt.Sprintf("Perhaps not decided as in the log, because %s: %s.", cmp.Or(inexactWords[why], why), linesOf(r.Inexact[why])))
	}
	return notes
}
