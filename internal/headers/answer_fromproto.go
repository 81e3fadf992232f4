package headers

import (
	"fmt"
	"slices"
	"strings"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Policy is what a client may know of a limit whether or not it is used.
type Policy struct {
	// Name is the rule's id, in ASCII; of the second limit of a rule it is "id[1]".
	Name string
	// Limit is in tokens per window.
	Limit int64
	// Window is 0 if it follows a calendar, whose windows differ in length.
	Window time.Duration
}

// Answer is what a client may know of a decision. The zero value is an answer without a
// limit.
type Answer struct {
	// Denied says that the request must not go on.
	Denied bool
	// Policy is the one that decided, and the next three fields tell its state. If its Name is empty there
	// is nothing to tell: no limit applies, or no node has decided.
	Policy    Policy
	Remaining int64
	// Reset is how long it takes until all of the limit is free, and ResetTime when
	// that is, in Unix seconds.
	Reset     time.Duration
	ResetTime int64
	// RetryAfter is how long to wait before the same request can be allowed: more than
	// 0 if Denied, unless no wait helps.
	RetryAfter time.Duration
	// Others are the other policies that apply.
	Others []Policy
	// Violated are the policies that deny. If Denied and there is none, no node could decide.
	Violated []Policy
}

// Of returns what clients may know of resp. Limits that are not enforced are none of
// their business.
func Of(resp *weirv1.RateLimitResponse) Answer {
	a := Answer{Denied: !resp.GetAllowed()}
	if resp.GetResetAfter() == nil {
		return a // no node has decided
	}
	a.Policy = Policy{Name: ascii(resp.GetRuleId()), Limit: int64(resp.GetLimit()), Window: resp.GetWindow().AsDuration()}
	a.Remaining = int64(resp.GetRemainingTokens())
	a.Reset, a.ResetTime = resp.GetResetAfter().AsDuration(), resp.GetResetTime()
	a.RetryAfter = resp.GetRetryAfter().AsDuration()
	names := make(namer)
	for _, l := range resp.GetLimits() {
		p := names.policy(l)
		if l.GetShadow() {
			continue
		}
		if isDeciding(resp, l) {
			a.Policy.Name = p.Name
		}
		if !l.GetAllowed() && l.GetResetAfter() != nil {
			a.Violated = appendNew(a.Violated, p)
		}
		a.Others = appendNew(a.Others, p)
	}
	a.Others = slices.DeleteFunc(a.Others, func(p Policy) bool { return p == a.Policy })
	if a.Denied && len(a.Violated) == 0 {
		a.Violated = []Policy{a.Policy}
	}
	return a
}

// isDeciding reports whether resp tells the state of l.
func isDeciding(resp *weirv1.RateLimitResponse, l *weirv1.LimitStatus) bool {
	return l.GetRuleId() == resp.GetRuleId() && l.GetLimit() == resp.GetLimit() &&
		l.GetWindow().AsDuration() == resp.GetWindow().AsDuration() && l.GetCalendar() == resp.GetCalendar()
}

func appendNew(all []Policy, p Policy) []Policy {
	if slices.Contains(all, p) {
		return all
	}
	return append(all, p)
}

// namer tells the limits of a rule apart: it has the different ones seen so far, by the
// rule's id. A limit that is counted per user and per address is one.
type namer map[string][]limitKind

type limitKind struct {
	limit               uint32
	window              time.Duration
	calendar, algorithm string
}

func (n namer) policy(l *weirv1.LimitStatus) Policy {
	id, window := l.GetRuleId(), l.GetWindow().AsDuration()
	kind := limitKind{l.GetLimit(), window, l.GetCalendar(), l.GetAlgorithm()}
	i := slices.Index(n[id], kind)
	if i < 0 {
		i = len(n[id])
		n[id] = append(n[id], kind)
	}
	name := ascii(id)
	if i > 0 {
		name = fmt.Sprintf("%s[%d]", name, i)
	}
	return Policy{Name: name, Limit: int64(l.GetLimit()), Window: window}
}

// ascii returns a name with percent-encoding for what a structured field cannot say. Ids
// of Weir's own rules need none.
func ascii(name string) string {
	var encoded strings.Builder
	for i := range len(name) {
		if b := name[i]; b >= ' ' && b <= '~' {
			encoded.WriteByte(b)
		} else {
			fmt.Fprintf(&encoded, "%%%02X", b)
		}
	}
	return encoded.String()
}

// names returns the names of policies, at most maxPolicies.
func names(policies []Policy) []string {
	var list []string
	for _, p := range policies[:min(len(policies), maxPolicies)] {
		list = append(list, p.Name)
	}
	return list
}
