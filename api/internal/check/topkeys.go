package check

import (
	"github.com/weirlimit/weir/internal/topkeys"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
)

// orderOf is the order that an outcome belongs to, in addition to Checks.
var orderOf = [outcomes]topkeys.Order{
	hadRoom: topkeys.Checks, hadNone: topkeys.Denied, hadNoneUnenforced: topkeys.WouldDeny, leftUndecided: topkeys.Checks,
}

// draw records those takes of a run that are drawn. The last one has the number end among those of its rule and outcome.
// It is called for few runs.
func (c *Checker) draw(w *Work, r run, end uint64, at int64) {
	t := r.tally
	t.pace.Lock()
	defer t.pace.Unlock()
	number := end - r.length + 1
	if at >= t.renew.Load() {
		for o := range t.next {
			if o == r.outcome {
				t.next[o].Store(t.pace.Renew(o, number-1))
			} else {
				t.next[o].Store(t.pace.Renew(o, t.counts[o].Load()))
			}
		}
		t.renew.Store(at + int64(topkeys.RenewEvery))
	}
	// What another call was to draw, and this one is ahead of, is drawn here.
	group, j := 0, r.first
	for drawn := max(number, t.next[r.outcome].Load()); drawn <= end; drawn = t.next[r.outcome].Load() {
		for ; number < drawn; number++ {
			group, j = w.nextCounted(group, j+1)
		}
		t.next[r.outcome].Store(t.pace.Draw(r.outcome, drawn, c.event(w, j, r.outcome)))
	}
}

// nextCounted returns the first take from j on that counts, and its group, which is not before the given one.
func (w *Work) nextCounted(group, j int) (int, int) {
	for ; ; j++ {
		for j >= w.Ends[group] {
			group++
		}
		if !w.Groups[group].Peek && w.Matches[j].Rule != nil {
			return group, j
		}
	}
}

// event returns the event of the j-th take, the zero value if it is none: of the limits of one rule and key, the first one with
// the worst outcome stands for the check. What is given back is no check.
func (c *Checker) event(w *Work, j, outcome int) topkeys.Event {
	if w.Takes[j].Cost < 0 || w.Start.IsZero() {
		return topkeys.Event{}
	}
	item := 0
	for w.Items[item].End <= j {
		item++
	}
	begin, m := 0, &w.Matches[j]
	if item > 0 {
		begin = w.Items[item-1].End
	}
	for k := begin; k < w.Items[item].End; k++ {
		other := &w.Matches[k]
		if k == j || other.Rule != m.Rule || other.Per != m.Per || other.Key.Lo != m.Key.Lo {
			continue
		}
		if worse := badness[outcomeOf(&w.Takes[k])] - badness[outcome]; worse > 0 || worse == 0 && k < j {
			return topkeys.Event{}
		}
	}
	w.drawn.match, w.drawn.item = j, item
	return topkeys.Event{ID: m.Key.Lo, Outcome: orderOf[outcome], Source: w}
}

// drawn is the take that a list of keys asks about.
type drawn struct{ match, item int }

// KeyAttributes implements topkeys.Source.
func (w *Work) KeyAttributes() (attributes []topkeys.Attribute) {
	request := w.Request
	if w.Decoder != nil && len(w.Items) > 1 {
		request = w.Decoder.Again(w.drawn.item)
	}
	for _, a := range w.Matches[w.drawn.match].Subject(&request, nil) {
		attributes = append(attributes, topkeys.Attribute{Key: a.Key, Value: a.Value})
	}
	return attributes
}

// badness orders outcomes: the highest of its limits is a check's.
var badness = [outcomes]int{hadRoom: 0, leftUndecided: 1, hadNoneUnenforced: 2, hadNone: 3}

// HashedValue returns what the decision log and the lists of keys have in place of a value: a hash that only those with
// the cluster's secret can make, and of which the name is part.
func HashedValue(h ring.Hasher, a rules.Attribute) string {
	b := make([]byte, 0, 128)
	b = append(append(append(b, "decision log\x00"...), a.Key...), 0)
	return keyText(h.Key(append(b, a.Value...)))
}
