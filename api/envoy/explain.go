package envoy

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/api/internal/check"
	"github.com/weirlimit/weir/api/internal/wire"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/shard"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Explain says what descriptors lead to and what would be decided, and counts nothing. Describe says what is said of
// a limit. An error is one of access, one about a field, or check.ErrOverloaded.
func (s *Service) Explain(ctx context.Context, req *weirv1.DescriptorsRequest, describe func(*rules.Match, *shard.Take) *weirv1.LimitStatus) (*weirv1.ExplainDescriptorsResponse, error) {
	w := s.newWork(ctx)
	defer s.works.Put(w)
	if err := s.nameDescriptors(w, req); err != nil {
		return nil, err
	}
	held, next, err := s.lookAtDescriptors(ctx, w)
	if err != nil {
		return nil, err
	}
	resp := &weirv1.ExplainDescriptorsResponse{}
	for i := range w.asked {
		a := &w.asked[i]
		explained := w.explainDescriptor(i, attributesIn(req.GetDescriptors()[i]))
		status := descriptorStatus{quota: s.config.Quota || a.quota()}
		if explained.Applies && a.kind == byDescriptor {
			explained.Limit = s.limitStatus(a, &held[i], &next[i], describe)
			status.over = !explained.Limit.GetAllowed() && !a.shadow()
		}
		status.quota = status.quota && a.kind == byDescriptor
		w.statuses = append(w.statuses, status)
		resp.Descriptors = append(resp.Descriptors, explained)
	}
	resp.Allowed = s.config.Shadow || !conclude(w.statuses).over
	return resp, nil
}

// nameDescriptors makes w.asked what the descriptors of req lead to.
func (s *Service) nameDescriptors(w *work, req *weirv1.DescriptorsRequest) error {
	w.Request.Domain = cmp.Or(req.GetDomain(), check.DefaultDomain)
	if err := w.MayAsk(); err != nil {
		return err
	}
	w.descriptors = w.Set.Descriptors(w.Request.Domain)
	switch n := len(req.GetDescriptors()); {
	case w.descriptors == nil:
		return wire.Invalid("domain", "%q has no descriptors; ask with an identifier and attributes", w.Request.Domain)
	case n == 0:
		return wire.Invalid("descriptors", "must not be empty")
	case n > maxInspected:
		return wire.Invalid("descriptors", "%d items are more than %d", n, maxInspected)
	case req.GetHits() < 0 || req.GetHits() > algorithms.MaxCost:
		return wire.Invalid("hits", "%d is not between 0 and %d", req.GetHits(), int64(algorithms.MaxCost))
	}
	for i, d := range req.GetDescriptors() {
		if err := validDescriptor(d); err != nil {
			return wire.Under(fmt.Sprintf("descriptors[%d]", i), err)
		}
		w.Request.Attributes = attributesIn(d)
		s.match(w, descriptor{hits: uint64(cmp.Or(req.GetHits(), 1))})
	}
	return nil
}

func validDescriptor(d *weirv1.Descriptor) error {
	switch n := len(d.GetEntries()); {
	case n == 0:
		return wire.Invalid("entries", "must not be empty")
	case n > check.MaxAttributes:
		return wire.Invalid("entries", "%d items are more than %d", n, check.MaxAttributes)
	}
	for i, e := range d.GetEntries() {
		if e.GetKey() == "" {
			return wire.Invalid(fmt.Sprintf("entries[%d].key", i), "must not be empty")
		}
	}
	return nil
}

func attributesIn(d *weirv1.Descriptor) []rules.Attribute {
	entries := make([]rules.Attribute, len(d.GetEntries()))
	for i, e := range d.GetEntries() {
		entries[i] = rules.Attribute{Key: e.GetKey(), Value: e.GetValue()}
	}
	return entries
}

// lookAtDescriptors returns, for each that is asked, its counter as it is, and as it would be
// with the hits. What has no limit has zero takes. The error is check.ErrOverloaded, or nil.
func (s *Service) lookAtDescriptors(ctx context.Context, w *work) (held, next []shard.Take, err error) {
	for i := range w.asked {
		a := &w.asked[i]
		if a.kind != byDescriptor {
			continue
		}
		hits := a.hits
		for _, a.hits = range []int64{0, hits} {
			w.Groups = append(w.Groups, shard.Group{Peek: true, Takes: []shard.Take{s.take(a)}})
		}
	}
	s.checks.Decider.Decide(ctx, w.Groups)
	held, next = make([]shard.Take, len(w.asked)), make([]shard.Take, len(w.asked))
	groups := w.Groups
	for i := range w.asked {
		a := &w.asked[i]
		if a.kind != byDescriptor {
			continue
		}
		for j, into := range []*shard.Take{&held[i], &next[i]} {
			*into = groups[j].Takes[0]
			if into.Source == shard.Overloaded {
				return nil, nil, check.ErrOverloaded
			}
			s.normalizeTake(a, into)
		}
		groups = groups[2:]
	}
	return held, next, nil
}

// explainDescriptor tells what the i-th descriptor, of these entries, leads to.
func (w *work) explainDescriptor(i int, entries []rules.Attribute) *weirv1.DescriptorExplanation {
	a := &w.asked[i]
	if a.rule == nil {
		return &weirv1.DescriptorExplanation{Reason: w.descriptors.Explain(entries)}
	}
	e := &weirv1.DescriptorExplanation{RuleId: a.rule.ID, Applies: true}
	var notes []string
	switch {
	case a.kind == byDescriptor && a.name() != "" && w.replaced[a.name()]:
		e.Applies = false
		notes = append(notes, fmt.Sprintf("another limit of the request replaces %q", a.name()))
	case a.kind == byFreedom:
		notes = append(notes, "is unlimited")
	}
	if a.shadow() {
		notes = append(notes, "is a shadow: it never denies")
	}
	if a.quota() {
		notes = append(notes, "has quota_mode: it denies only if all that have it do")
	}
	e.Reason = strings.Join(notes, "; ")
	return e
}

// limitStatus describes a limit that was looked at twice.
func (s *Service) limitStatus(a *asked, held, next *shard.Take, describe func(*rules.Match, *shard.Take) *weirv1.LimitStatus) *weirv1.LimitStatus {
	m := rules.Match{Rule: a.rule, Key: a.key, Shadow: a.shadow()}
	st := describe(&m, held)
	st.Limit = a.requests
	would := describe(&m, next)
	st.Allowed, st.RetryAfter = would.GetAllowed(), would.GetRetryAfter()
	if s.config.CountDenied && !st.GetAllowed() {
		// Held against a higher limit, it does not know when it would have room.
		st.RetryAfter = nil
		if d := next.Decision; check.Answered(next) && next.Cost <= int64(a.requests) {
			d.RetryAt = algorithms.Never
			st.RetryAfter = durationpb.New(time.Duration(untilReset(&a.limit, &d)))
		}
	}
	return st
}

// Counters returns the counters of the limits that descriptors lead to. An error is one of access, or one about a field.
func (s *Service) Counters(ctx context.Context, req *weirv1.DescriptorsRequest) ([]rules.Match, error) {
	w := s.newWork(ctx)
	defer s.works.Put(w)
	if err := s.nameDescriptors(w, req); err != nil {
		return nil, err
	}
	var counters []rules.Match
	for i := range w.asked {
		if a := &w.asked[i]; a.kind == byDescriptor {
			counters = append(counters, rules.Match{Rule: a.rule, Key: a.key})
		}
	}
	return counters, nil
}
