package linear

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// searchTime bounds the search for an order of one history. A history that needs more is a failure.
const searchTime = 20 * time.Second

// notHeld stands for remaining tokens of an answer that the model does not hold it to.
const notHeld = -1

// answer is what a client was told.
type answer struct {
	unknown   bool // the check may have been counted or not
	allowed   bool
	remaining [maxCounters]int64 // notHeld if the answer does not say, or is not exact
	turn      int64
}

// loss is a kill: of the last tokens of each counter at most this number are forgotten.
type loss struct{ tokens int64 }

// agrees reports whether an answer is that of the sequential counters.
func (a answer) agrees(k *kind, c check, d decision) bool {
	if a.allowed != d.allowed {
		return k.spare > 0 && !a.allowed && d.remaining[0] < k.spare
	}
	for _, i := range c.counters {
		if a.remaining[i] != notHeld && a.remaining[i] != d.remaining[i] {
			return false
		}
	}
	return a.turn == d.turn
}

// model returns the sequential counters of a kind, as porcupine steps through them.
func (k *kind) model() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{allCounters{}} },
		Step: func(s, in, out any) []any { return k.next(s.(allCounters), in, out) },
		DescribeOperation: func(in, out any) string {
			if l, ok := in.(loss); ok {
				return fmt.Sprintf("an owner is killed: up to %d tokens are lost", l.tokens)
			}
			return in.(check).String() + " -> " + out.(answer).String()
		},
		DescribeState: func(s any) string { return k.describe(s.(allCounters)) },
	}
	return m.ToModel()
}

// next returns the states in which the counters may be after an operation with this result, none if there
// is no such state.
func (k *kind) next(s allCounters, in, out any) []any {
	if l, ok := in.(loss); ok {
		return k.without(s, l.tokens)
	}
	c, a := in.(check), out.(answer)
	var all []any
	for _, at := range k.instants(c) {
		switch next, d := k.decide(s, c, at); {
		case a.unknown:
			all = append(all, s, next)
		case !a.agrees(k, c, d):
		case !a.allowed:
			all = append(all, s)
		default:
			all = append(all, next)
		}
	}
	return all
}

// without returns all states in which each counter of s has counted less, by that number of tokens at most.
func (k *kind) without(s allCounters, tokens int64) (all []any) {
	states := []allCounters{s}
	for i := range k.limits {
		for _, s := range states {
			for range tokens {
				before := s
				if s[i].step(&k.limits[i], instant, -1); s == before {
					break
				}
				states = append(states, s)
			}
		}
	}
	for _, s := range states {
		all = append(all, s)
	}
	return all
}

func (c check) String() string {
	verb := "take"
	if c.peek {
		verb = "look for"
	}
	return fmt.Sprintf("%s %d of %v", verb, c.cost, c.counters)
}

func (a answer) String() string {
	words := []string{"denied"}
	switch {
	case a.unknown:
		return "no answer"
	case a.allowed:
		words[0] = "allowed"
	}
	if left := slices.DeleteFunc(slices.Clone(a.remaining[:]), func(n int64) bool { return n == notHeld }); len(left) > 0 {
		words = append(words, fmt.Sprintf("%d left", left))
	}
	if a.turn > 0 {
		words = append(words, fmt.Sprintf("after %d", a.turn))
	}
	return strings.Join(words, ", ")
}

func (k *kind) describe(s allCounters) string {
	if k.grid > 0 {
		return fmt.Sprintf("%x", s[0])
	}
	left := make([]int64, len(k.limits))
	for i := range left {
		left[i] = s[i].room(&k.limits[i], instant)
	}
	return fmt.Sprintf("%d left", left)
}

// search returns whether there is an order, porcupine.Unknown if the time was over before that was known.
func (h *history) search() porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(h.kind.model(), h.ops, searchTime)
}

// explain says where the search for an order has ended, and writes porcupine's drawing of it to a file.
func (h *history) explain(t *testing.T) string {
	t.Helper()
	model := h.kind.model()
	result, info := porcupine.CheckOperationsVerbose(model, h.ops, searchTime)
	f, err := os.CreateTemp("", "weir-linear-*.html") //nolint:usetesting // it is to be looked at after the test
	if err != nil {
		t.Fatal(err)
	}
	if err := porcupine.Visualize(model, info, f); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	return fmt.Sprintf("%s: %d checks, %s; see %s\n%s", h.name, len(h.ops), result, f.Name(), h.end(info))
}

// end lists the last checks of the longest order that was found, and the first checks that have no place in it.
func (h *history) end(info porcupine.LinearizationInfo) string {
	const shown = 12
	var longest []porcupine.Operation
	for _, orders := range info.PartialLinearizationsOperations() {
		for _, order := range orders {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	var b strings.Builder
	model := h.kind.model()
	placed := make(map[string]int)
	s := model.Init()
	for i, o := range longest {
		_, s = model.Step(s, o.Input, o.Output)
		placed[line(model, o)]++
		if i >= len(longest)-shown {
			fmt.Fprintf(&b, "  %s => %s\n", line(model, o), model.DescribeState(s))
		}
	}
	b.WriteString("  and then none of:\n")
	rest := slices.Clone(h.ops)
	slices.SortFunc(rest, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	left := 0
	for _, o := range rest {
		if text := line(model, o); placed[text] > 0 {
			placed[text]--
		} else if left++; left <= shown {
			b.WriteString("  " + text + "\n")
		}
	}
	return b.String()
}

// line is an operation in words.
func line(model porcupine.Model, o porcupine.Operation) string {
	source := ""
	if o.Metadata != nil {
		source = fmt.Sprintf(" by %v", o.Metadata)
	}
	return fmt.Sprintf("%.6f to %.6f client %d: %s%s", time.Duration(o.Call).Seconds(), time.Duration(o.Return).Seconds(), o.ClientId,
		model.DescribeOperation(o.Input, o.Output), source)
}
