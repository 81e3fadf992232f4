package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Times and bounds of a roll-out.
const (
	promoteLook = 5 * time.Second // between two readings, or a tenth of --wait if that is less
	promoteCall = 2 * time.Second // of one call, or --timeout if that is less
	// promoteDeviations is by how many standard deviations the checks without room must be too many, to stop before --wait is over.
	promoteDeviations = 3
)

// ruleCluster is the cluster that a roll-out asks about its rule. A call ends with its context.
type ruleCluster interface {
	// rule returns the rule as it is stored.
	rule(ctx context.Context) (*weirv1.RateLimit, error)
	// update stores the rule if its revision is still that of the stored one, and returns it as it is then.
	update(ctx context.Context, rule *weirv1.RateLimit) (*weirv1.RateLimit, error)
	// nodes returns members and the nodes that wait to join.
	nodes(ctx context.Context) ([]*weirv1.Node, error)
	// counts returns what one node has counted. It is called for several nodes at once.
	counts(ctx context.Context, n *weirv1.Node) (*weirv1.GetRuleCountsResponse, error)
}

// rollout raises enforce of one rule by a plan.
type rollout struct {
	plan
	cluster ruleCluster
	report  func(rolloutEvent) error

	first   uint32            // enforce as the command has found it
	current *weirv1.RateLimit // as this roll-out has read or written it
}

// stopError says why a roll-out went no further.
type stopError struct {
	name    ruleName
	highest uint32 // enforce at most; above enforce if the rule went back
	enforce uint32
	reason  string
	whose   bool // says how to find out whose checks had no room
}

func (e *stopError) Error() string {
	text := fmt.Sprintf("%s stopped at %d%%: %s", e.name, e.enforce, e.reason)
	if e.enforce < e.highest {
		text = fmt.Sprintf("%s went back from %d%% to %d%%: %s", e.name, e.highest, e.enforce, e.reason)
	}
	if e.whose {
		text += fmt.Sprintf("; to see whose checks, run \"weir top --by would_deny --domain %s --rule %s\"", cmp.Or(e.name.domain, defaultDomain), e.name.id)
	}
	return text
}

// rolloutEvent is what happens in a roll-out. It is a line of --json.
type rolloutEvent struct {
	Event     string   `json:"event"` // plan, watched, stored, stopped, done
	Domain    string   `json:"domain"`
	Rule      string   `json:"rule"`
	Enforce   uint32   `json:"enforce"`              // percent
	Steps     []int64  `json:"steps,omitempty"`      // of a plan: those that are left
	MinChecks uint64   `json:"min_checks,omitempty"` // of a plan
	Below     float64  `json:"below,omitempty"`      // of a plan: a share
	Wait      float64  `json:"wait_seconds,omitempty"`
	Back      *uint32  `json:"back_to,omitempty"` // of a plan: where too many checks without room lead; missing: nowhere
	Seconds   float64  `json:"seconds,omitempty"` // since the watch began
	Checks    *uint64  `json:"checks,omitempty"`
	Denied    *uint64  `json:"denied,omitempty"` // checks without room, enforced or not
	Share     *float64 `json:"share,omitempty"`
	Bound     bool     `json:"upper_bound,omitempty"` // denied and share are upper bounds
	Undecided uint64   `json:"undecided,omitempty"`
	Revision  int64    `json:"revision,omitempty"` // that was stored
	Reason    string   `json:"reason,omitempty"`   // why it stopped
	DryRun    bool     `json:"dry_run,omitempty"`
}

// rolloutReport returns what prints events.
func (a *app) rolloutReport(asJSON bool) func(rolloutEvent) error {
	return func(e rolloutEvent) error {
		text := formatRollout(e)
		if asJSON {
			line, err := json.Marshal(e)
			if err != nil {
				return err
			}
			text = string(line) + "\n"
		}
		_, err := fmt.Fprint(a.stdout, text)
		return err
	}
}

// formatRollout returns an event as a line for people. Why it stops is an error, which is printed at the end.
func formatRollout(e rolloutEvent) string {
	name := ruleName{e.Domain, e.Rule}
	switch e.Event {
	case "plan":
		if len(e.Steps) == 0 {
			return fmt.Sprintf("%s is at %d%% already\n", name, e.Enforce)
		}
		steps := []string{fmt.Sprintf("%d%%", e.Enforce)}
		for _, s := range e.Steps {
			steps = append(steps, fmt.Sprintf("%d%%", s))
		}
		text := fmt.Sprintf("%s: %s\neach step after %s with less than %s of at least %d checks without room",
			name, strings.Join(steps, " -> "), formatSeconds(e.Wait), formatShare(e.Below), e.MinChecks)
		if e.Back != nil {
			text += fmt.Sprintf("; with more, back to %d%%", *e.Back)
		}
		return text + "\n"
	case "watched":
		return fmt.Sprintf("at %d%%, %s of %s: %s\n", e.Enforce, formatSeconds(e.Seconds),
			formatSeconds(e.Wait), formatCounts(*e.Checks, *e.Denied, *e.Share, e.Bound, e.Undecided))
	case "stored":
		return fmt.Sprintf("enforce is %d%% now, revision %d\n", e.Enforce, e.Revision)
	case "done":
		if e.DryRun {
			return fmt.Sprintf("nothing is stored: %s would move on to %d%%\n", name, e.Steps[0])
		}
		return fmt.Sprintf("%s has reached %d%%\n", name, e.Enforce)
	}
	return ""
}

// formatSeconds returns a number of seconds, to tenths below ten.
func formatSeconds(n float64) string {
	unit := time.Second
	if n < 10 {
		unit /= 10
	}
	return trim(time.Duration(n * float64(time.Second)).Round(unit))
}

// formatCounts says what was counted.
func formatCounts(checks, denied uint64, share float64, bound bool, undecided uint64) string {
	atMost := ""
	if bound {
		atMost = "at most "
	}
	text := fmt.Sprintf("%d checks, %s%d without room (%s)", checks, atMost, denied, formatShare(share))
	if undecided > 0 {
		text += fmt.Sprintf(", %d undecided", undecided)
	}
	return text
}

// formatShare returns a share as a percentage of three digits.
func formatShare(share float64) string {
	return strconv.FormatFloat(100*share, 'g', 3, 64) + "%"
}

// enforceOf is the percentage of the counters that a rule enforces.
func enforceOf(rule *weirv1.RateLimit) uint32 {
	if rule.GetRule().Enforce == nil {
		return 100
	}
	return rule.GetRule().GetEnforce()
}

// run carries out the plan. A *stopError says why it went no further; other errors are of the first calls and of storing.
func (p *rollout) run(ctx context.Context) (err error) {
	if p.current, err = timed(ctx, p.patience, p.cluster.rule); err != nil {
		return err
	}
	if err := p.movable(); err != nil {
		return err
	}
	p.first = enforceOf(p.current)
	var left []int64
	for _, s := range p.steps {
		if s > int64(p.first) {
			left = append(left, s)
		}
	}
	if len(left) > 0 && !p.shorter {
		if err := p.watchesWindows(); err != nil {
			return err
		}
	}
	begin := p.event("plan")
	begin.Steps, begin.MinChecks, begin.Below, begin.Wait, begin.DryRun = left, p.minChecks, p.below, p.wait.Seconds(), p.dryRun
	if !p.stay && !p.dryRun {
		begin.Back = &p.first
	}
	if err := p.report(begin); err != nil || len(left) == 0 {
		return err
	}
	for i, next := range left {
		if err := p.watch(ctx); err != nil {
			return err
		}
		if p.dryRun {
			done := p.event("done")
			done.Steps, done.DryRun = left[i:], true
			return p.report(done)
		}
		if err := p.move(ctx, uint32(next)); err != nil {
			return err
		}
	}
	return p.report(p.event("done"))
}

// timed makes one call within a time.
func timed[T any](ctx context.Context, timeout time.Duration, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return call(ctx)
}

// event returns an event of the rule as it is.
func (p *rollout) event(kind string) rolloutEvent {
	return rolloutEvent{Event: kind, Domain: cmp.Or(p.name.domain, defaultDomain), Rule: p.name.id, Enforce: enforceOf(p.current)}
}

// stop reports that the roll-out ends, and returns why.
func (p *rollout) stop(format string, args ...any) error {
	return p.end(&stopError{name: p.name, highest: enforceOf(p.current), reason: fmt.Sprintf(format, args...)})
}

// end reports that the roll-out ends, and returns why, with the percentage of the rule.
func (p *rollout) end(why *stopError) error {
	e := p.event("stopped")
	e.Reason, why.enforce = why.reason, e.Enforce
	if err := p.report(e); err != nil {
		return err
	}
	return why
}

// goBack stores the percentage that the rule had at first, reports that the roll-out ends, and returns why. An interrupt does not keep it from that.
func (p *rollout) goBack(ctx context.Context, reason string) error {
	why := &stopError{name: p.name, highest: enforceOf(p.current), reason: reason, whose: true}
	if p.stay || why.highest == p.first {
		return p.end(why)
	}
	switch err := p.store(context.WithoutCancel(ctx), p.first); status.Code(err) {
	case codes.OK:
		if err := p.reportStored(); err != nil {
			return err
		}
		return p.end(why)
	case codes.Aborted, codes.NotFound:
		return p.stop("%s; it does not go back, as another caller has changed or deleted the rule", reason)
	default:
		return fmt.Errorf("%s may still be at %d%%, set enforce to %d by hand: %s, and storing failed: %s",
			p.name, why.highest, p.first, reason, status.Convert(err).Message())
	}
}

// movable returns why enforce of the rule cannot be raised, nil if it can.
func (p *rollout) movable() error {
	rule := p.current.GetRule()
	switch {
	case rule.GetDescriptorYaml() != "":
		return fmt.Errorf("%s is a descriptor, which has no enforce: change its shadow_mode with \"weir rules apply\"", p.name)
	case rule.GetUnlimited():
		return fmt.Errorf("%s has no limits: it never denies", p.name)
	case rule.Enabled != nil && !rule.GetEnabled():
		return fmt.Errorf("%s is not enabled: it counts nothing", p.name)
	case p.current.GetRevision() == 0 && !p.dryRun:
		return fmt.Errorf("%s comes from a file of the nodes, and cannot be changed here: set enforce in the file, or only look with --dry-run", p.name)
	}
	return nil
}

// store stores a percentage, if the rule is still what it was.
func (p *rollout) store(ctx context.Context, percent uint32) error {
	full := proto.CloneOf(p.current.GetRule())
	full.Enforce = proto.Uint32(percent)
	next, err := timed(ctx, p.patience, func(ctx context.Context) (*weirv1.RateLimit, error) {
		return p.cluster.update(ctx, &weirv1.RateLimit{Domain: p.current.GetDomain(), Id: p.current.GetId(), Rule: full, Revision: p.current.GetRevision()})
	})
	if err == nil {
		p.current = next
	}
	return err
}

// reportStored reports the percentage that was stored.
func (p *rollout) reportStored() error {
	e := p.event("stored")
	e.Revision = p.current.GetRevision()
	return p.report(e)
}

// move takes the next step.
func (p *rollout) move(ctx context.Context, percent uint32) error {
	switch err := p.store(ctx, percent); status.Code(err) {
	case codes.OK:
		return p.reportStored()
	case codes.Aborted:
		return p.stop("another caller has changed the rule")
	case codes.NotFound:
		return p.stop("another caller has deleted the rule")
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return fmt.Errorf("%s may be at %d%% or at %d%%, start the command again: storing failed: %s",
			p.name, enforceOf(p.current), percent, status.Convert(err).Message())
	default:
		return err
	}
}

// reading is what one node has counted.
type reading struct {
	incarnation                           uint64
	allowed, denied, wouldDeny, undecided uint64
}

// sheet adds up what nodes count.
type sheet struct {
	last     map[string]reading // by id
	sum      reading
	perCheck uint64 // how many limits a check is held against at most
}

// add takes a node's counts. What a node had counted when it was first seen is left out.
func (s *sheet) add(c *weirv1.GetRuleCountsResponse) {
	now := reading{c.GetIncarnation(), c.GetAllowed(), c.GetDenied(), c.GetWouldDeny(), c.GetUndecided()}
	last, known := s.last[c.GetNodeId()]
	s.last[c.GetNodeId()] = now
	s.perCheck = max(s.perCheck, uint64(c.GetLimitsPerCheck()), 1)
	if !known {
		return
	}
	if last.incarnation != now.incarnation {
		last = reading{} // started again since, and counts from zero
	}
	since := func(now, last uint64) uint64 { // a rule that was deleted and made again counts from zero, too
		if now < last {
			return now
		}
		return now - last
	}
	s.sum.allowed += since(now.allowed, last.allowed)
	s.sum.denied += since(now.denied, last.denied)
	s.sum.wouldDeny += since(now.wouldDeny, last.wouldDeny)
	s.sum.undecided += since(now.undecided, last.undecided)
}

// begin forgets what was counted so far.
func (s *sheet) begin() { s.sum = reading{} }

// result returns the checks that were decided, and those without room. Each limit of a check is counted, so with several
// limits a check the latter is an upper bound.
func (s *sheet) result() (checks, denied uint64, share float64) {
	limits := s.sum.allowed + s.sum.denied + s.sum.wouldDeny
	checks = limits / max(1, s.perCheck)
	denied = min(s.sum.denied+s.sum.wouldDeny, checks)
	if checks > 0 {
		share = float64(denied) / float64(checks)
	}
	return checks, denied, share
}

// watch returns nil once all nodes have run the rule for the time of a step, and few enough checks had no room.
func (p *rollout) watch(ctx context.Context) error {
	s := &sheet{last: make(map[string]reading)}
	pause := min(promoteLook, p.wait/10)
	look := time.NewTicker(pause)
	defer look.Stop()
	silent := make(map[string]time.Time) // nodes that do not answer or run another revision, since when
	var began, told time.Time            // began is zero until all nodes run the rule
	for {
		missing, err := p.read(ctx, s)
		if ctx.Err() != nil {
			return p.stop("it was interrupted")
		}
		if err != nil {
			return err
		}
		now := time.Now()
		if err := p.checkSilent(silent, missing, now); err != nil {
			return err
		}
		switch whole := len(missing) == 0; {
		case began.IsZero() && whole:
			s.begin()
			began, told = now, now
		case began.IsZero():
		case now.Sub(began) >= p.wait && whole:
			if err := p.tell(s, now.Sub(began)); err != nil {
				return err
			}
			return p.judge(ctx, s, true)
		default:
			// A reading comes a little early or late. The last one is told with what follows from it.
			if now.Sub(told) >= p.wait/10-pause/2 && now.Sub(began) < p.wait-pause/2 {
				if err := p.tell(s, now.Sub(began)); err != nil {
					return err
				}
				told = now
			}
			if err := p.judge(ctx, s, false); err != nil {
				return err
			}
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return p.stop("it was interrupted")
		}
	}
}

// checkSilent stops the roll-out if a node has been missing for too long.
func (p *rollout) checkSilent(silent map[string]time.Time, missing map[string]string, now time.Time) error {
	for id := range silent {
		if _, still := missing[id]; !still {
			delete(silent, id)
		}
	}
	var late []string
	for id, why := range missing {
		since, known := silent[id]
		if !known {
			silent[id] = now
		} else if now.Sub(since) >= p.patience {
			late = append(late, fmt.Sprintf("%s %s", id, why))
		}
	}
	if len(late) == 0 {
		return nil
	}
	slices.Sort(late)
	return p.stop("for %v, %s", p.patience, strings.Join(late, "; "))
}

// tell reports what was counted so far.
func (p *rollout) tell(s *sheet, since time.Duration) error {
	e := p.event("watched")
	checks, denied, share := s.result()
	e.Checks, e.Denied, e.Share, e.Undecided, e.Bound = &checks, &denied, &share, s.sum.undecided, s.perCheck > 1
	e.Seconds, e.Wait = min(since, p.wait).Seconds(), p.wait.Seconds()
	return p.report(e)
}

// judge ends the roll-out if too many checks had no room, and at the end of a step if there were too few checks.
func (p *rollout) judge(ctx context.Context, s *sheet, end bool) error {
	checks, denied, share := s.result()
	few, least := checks < p.minChecks, float64(denied)
	if !end || few { // chance alone makes a share too high now and then, if it is looked at often or made of few checks
		least -= promoteDeviations * math.Sqrt(least)
	}
	// Callers that are denied may stop asking: too many are too many among few checks, too.
	if denied == 0 || least < p.below*float64(checks) {
		if few && end {
			return p.stop("too few checks to know: %d, and at least %d are needed; wait longer with --wait, or set --min-checks", checks, p.minChecks)
		}
		return nil
	}
	return p.goBack(ctx, fmt.Sprintf("%s, which is not below %s", formatCounts(checks, denied, share, s.perCheck > 1, s.sum.undecided), formatShare(p.below)))
}

// read adds what all nodes have counted, and returns the members whose counts are missing, with why. An error ends the roll-out.
func (p *rollout) read(ctx context.Context, s *sheet) (missing map[string]string, err error) {
	timeout := min(p.patience, promoteCall)
	missing = make(map[string]string)
	rule, err := timed(ctx, timeout, p.cluster.rule)
	switch {
	case status.Code(err) == codes.NotFound:
		return nil, p.stop("another caller has deleted the rule")
	case err == nil && rule.GetRevision() < p.current.GetRevision():
		missing["the asked node"] = fmt.Sprintf("has revision %d of the rule, not %d yet", rule.GetRevision(), p.current.GetRevision())
		return missing, nil
	case err == nil && rule.GetRevision() != p.current.GetRevision():
		return nil, p.stop("another caller has changed the rule: it has revision %d, and had %d", rule.GetRevision(), p.current.GetRevision())
	}
	nodes, listErr := timed(ctx, timeout, p.cluster.nodes)
	if err := cmp.Or(err, listErr); err != nil {
		missing["the asked node"] = "does not answer: " + status.Convert(err).Message()
		return missing, nil
	}
	var mu sync.Mutex // guards s and missing
	var asked sync.WaitGroup
	for _, n := range nodes {
		asked.Go(func() {
			counts, err := timed(ctx, timeout, func(ctx context.Context) (*weirv1.GetRuleCountsResponse, error) { return p.cluster.counts(ctx, n) })
			mu.Lock()
			defer mu.Unlock()
			if why := p.reasonOf(counts, err); why == "" {
				s.add(counts)
			} else if n.GetMember() { // others may be starting or stopping
				missing[n.GetId()] = why
			}
		})
	}
	asked.Wait()
	return missing, nil
}

// reasonOf says why a node's counts are of no use, "" if they are.
func (p *rollout) reasonOf(counts *weirv1.GetRuleCountsResponse, err error) string {
	switch code := status.Code(err); {
	case code == codes.NotFound:
		return "does not run the rule"
	case code == codes.Unimplemented:
		return "runs a version that does not count for this command"
	case code == codes.DeadlineExceeded:
		return "does not answer"
	case err != nil:
		return "does not answer: " + status.Convert(err).Message()
	case counts.GetRevision() != p.current.GetRevision():
		return fmt.Sprintf("runs revision %d of the rule, not %d", counts.GetRevision(), p.current.GetRevision())
	}
	return ""
}
