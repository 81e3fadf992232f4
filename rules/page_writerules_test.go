package rules

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

const guide = "../docs/write-rules.md"

// fence is one fenced block of a document.
type fence struct {
	line int    // of its text
	kind string // what stands behind the fence
	text string
}

func fences(t *testing.T) (all []fence) {
	t.Helper()
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	open := false
	for i, line := range strings.Split(string(text), "\n") {
		kind, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && !open:
			all = append(all, fence{line: i + 2, kind: kind})
			open = true
		case isFence:
			open = false
		case open:
			all[len(all)-1].text += line + "\n"
		}
	}
	return all
}

// The examples of the guide load, survive Format, and do what it says.
func TestGuide(t *testing.T) {
	var set *Set
	traces := 0
	for _, f := range fences(t) {
		switch f.kind {
		case "yaml":
			var err error
			if set, err = Parse(guide, []byte(f.text)); err != nil {
				t.Fatalf("line %d: %v", f.line, err)
			}
			formatted, err := Format(set.Documents())
			if again := parse(t, string(formatted)); err != nil || again.Hash() != set.Hash() {
				t.Errorf("line %d: the example does not survive Format: %v", f.line, err)
			}
		case "trace":
			traces++
			checkTrace(t, set, f)
		}
	}
	if traces < 10 {
		t.Errorf("%d traces", traces)
	}
}

// The errors of the guide are those of the examples before them.
func TestGuideErrors(t *testing.T) {
	all := fences(t)
	refused := 0
	for i, f := range all {
		if f.kind != "yaml refused" {
			continue
		}
		refused++
		_, err := Parse("rules.yaml", []byte(f.text))
		if want := strings.TrimSpace(all[i+1].text); err == nil || err.Error() != want {
			t.Errorf("line %d:\ngot  %v\nwant %s", f.line, err, want)
		}
	}
	if refused == 0 {
		t.Error("no errors")
	}
}

// checkTrace plays the lines of a trace. Each says when how many requests come,
// with which attributes, and what all of them get:
//
//	1.5s  20 x user=alice  allowed, 0 left
//
// When is since the first second of 2026, or a date and time.
func checkTrace(t *testing.T, set *Set, f fence) {
	t.Helper()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	world := make(simulation)
	for i, line := range strings.Split(strings.TrimSuffix(f.text, "\n"), "\n") {
		fields := strings.Fields(line)
		at, dateErr := time.Parse(time.RFC3339, fields[0])
		if offset, err := time.ParseDuration(fields[0]); err == nil {
			at, dateErr = start.Add(offset), nil
		}
		times, err := strconv.Atoi(fields[1])
		if dateErr != nil || err != nil || fields[2] != "x" {
			t.Fatalf("line %d: %q is no line of a trace", f.line+i, line)
		}
		var domain string
		for r := range set.Rules() {
			domain = r.Domain
		}
		req := &Request{Domain: domain}
		rest := fields[3:]
		for ; len(rest) > 0 && strings.Contains(rest[0], "="); rest = rest[1:] {
			key, value, _ := strings.Cut(rest[0], "=")
			req.Attributes = append(req.Attributes, Attribute{Key: key, Value: value})
		}
		var got []string
		for range times {
			got = append(got, world.ask(set, req, at.UnixNano()))
		}
		want := strings.Join(rest, " ")
		first, _, _ := strings.Cut(got[0], ",")
		if last := got[times-1]; last != want || !strings.HasPrefix(last, first) {
			t.Errorf("line %d: request 1 is %s; %d is\n%s, not\n%s", f.line+i, got[0], times, last, want)
		}
	}
}

// simulation holds counters.
type simulation map[ring.Key]*simulated

type simulated struct {
	state algorithms.State
	long  algorithms.Long
}

// ask decides a request as one node would, and says how.
func (w simulation) ask(set *Set, req *Request, now int64) string {
	matches := set.Match(testHasher, req, nil)
	if len(matches) == 0 {
		return "allowed, no rule"
	}
	if matches[0].Limit < 0 {
		return "allowed, exempt by " + matches[0].Rule.ID
	}
	decisions := make([]algorithms.Decision, len(matches))
	allowed := true
	for i := range matches {
		decisions[i] = w.step(&matches[i], req, now, false)
		allowed = allowed && (decisions[i].Allowed || matches[i].Shadow)
	}
	for i := range matches {
		if allowed && decisions[i].Allowed {
			w.step(&matches[i], req, now, true)
		}
	}
	return verdict(matches, decisions, allowed)
}

func (w simulation) step(m *Match, req *Request, now int64, commit bool) algorithms.Decision {
	c := w[m.Key]
	if c == nil {
		c = new(simulated)
		w[m.Key] = c
	}
	cost, err := m.Rule.Cost(req, 1)
	if err != nil {
		panic(err)
	}
	limit := m.Held()
	if limit.Algorithm.Long() {
		return c.long.Step(&limit, now, cost, commit)
	}
	next, d := algorithms.Step(&limit, c.state, now, cost)
	if commit {
		c.state = next
	}
	return d
}

// verdict says what a caller sees: of the first limit that denies, or of the one
// with least left.
func verdict(matches []Match, decisions []algorithms.Decision, allowed bool) string {
	text, least := "", int64(-1)
	for i, d := range decisions {
		name := fmt.Sprintf("%s[%d]", matches[i].Rule.ID, matches[i].Limit)
		switch {
		case !d.Allowed && matches[i].Shadow && allowed:
			return "allowed, though " + name + " is full"
		case !d.Allowed && !matches[i].Shadow && d.RetryAt == algorithms.Never:
			return "denied by " + name + " for good"
		case !d.Allowed && !matches[i].Shadow:
			return fmt.Sprintf("denied by %s, the next is allowed after %v", name, time.Duration(d.RetryAt-d.At).Round(time.Millisecond))
		}
		left := max(0, d.Remaining-matches[i].Above)
		if !allowed || least >= 0 && left >= least {
			continue
		}
		least = left
		switch {
		case d.Delay > 0:
			text = fmt.Sprintf("allowed, after waiting for %v", time.Duration(d.Delay))
		case d.Remaining < matches[i].Above:
			text = "allowed above the limit"
		default:
			text = fmt.Sprintf("allowed, %d left", left)
		}
	}
	return text
}
