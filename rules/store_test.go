package rules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/internal/inmemory"
)

func TestStoreChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &memoryBackend{}
		s, other := b.open(t), b.open(t)
		if s.Set().Len() != 0 || s.Set().Hash() != emptyHash || s.State().Revision != 0 {
			t.Errorf("before the first change: %s", briefState(s.State()))
		}
		file := []Document{{Domain: "d", Rules: []Spec{spec("b", 2), spec("a", 5), spec("x", 9)}}, {Domain: "f", Rules: []Spec{spec("z", 1)}}}
		for _, c := range []struct {
			what string
			edit Edit
			want string // the state after, or the error
		}{
			{"create", Create("d", spec("a", 1)), "1 d/a=1@1"},
			{"create elsewhere", Create("e", spec("a", 1)), "2 d/a=1@1 e/a=1@2"},
			{"create behind its domain", Create("d", spec("b", 1)), "3 d/a=1@1 d/b=1@3 e/a=1@2"},
			{"create again", Create("d", spec("a", 9)), `there is such a rule already: "a" in domain "d"`},
			{"create without a name", Create("d", spec("", 9)), `rules: id: "" has 0 bytes, not 1 to 128`},
			{"create with bad names", Create("a b", spec("c d", 9)),
				"rules: domain: \"a b\" has characters other than letters, digits and _ - .\nrules: id: \"c d\" has characters other than letters, digits and _ - . /"},
			{"create nonsense", Create("d", spec("c", -1)), `rules: rule "c": limits[0].limit: "-1" is not between 0 and 2147483648`},
			{"update", Update("d", spec("a", 2), 0), "4 d/a=2@4 d/b=1@3 e/a=1@2"},
			{"update at its revision", Update("d", spec("a", 3), 4), "5 d/a=3@5 d/b=1@3 e/a=1@2"},
			{"update at an older one", Update("d", spec("a", 4), 4), `another caller has changed the rules meanwhile: "a" in domain "d" is at revision 5, not 4`},
			{"update of nothing", Update("d", spec("c", 4), 0), `there is no such rule: "c" in domain "d"`},
			{"update in no domain", Update("g", spec("a", 4), 0), `there is no such rule: "a" in domain "g"`},
			{"update to the same", Update("d", spec("a", 3), 5), "5 d/a=3@5 d/b=1@3 e/a=1@2"},
			{"delete at an older revision", Delete("d", "a", 1), `another caller has changed the rules meanwhile: "a" in domain "d" is at revision 5, not 1`},
			{"delete", Delete("d", "a", 5), "6 d/b=1@3 e/a=1@2"},
			{"delete again", Delete("d", "a", 5), `there is no such rule: "a" in domain "d"`},
			{"apply", Apply(file, false), "7 d/b=2@7 d/a=5@7 d/x=9@7 e/a=1@2 f/z=1@7"},
			{"apply again", Apply(file, false), "7 d/b=2@7 d/a=5@7 d/x=9@7 e/a=1@2 f/z=1@7"},
			{"apply to another revision", Apply(file, false).At(6), `another caller has changed the rules meanwhile: they are at revision 7, not 6`},
			{"apply in part", Apply([]Document{{Domain: "d", Rules: []Spec{spec("y", 1), spec("a", 6)}}}, false).At(7), "8 d/b=2@7 d/a=6@8 d/x=9@7 d/y=1@8 e/a=1@2 f/z=1@7"},
			{"prune", Apply([]Document{{Domain: "d", Rules: []Spec{spec("y", 1), spec("b", 2)}}}, true), "9 d/y=1@8 d/b=2@7 e/a=1@2 f/z=1@7"},
			{"prune for the order only", Apply([]Document{{Domain: "d", Rules: []Spec{spec("b", 2), spec("y", 1)}}}, true), "10 d/b=2@7 d/y=1@8 e/a=1@2 f/z=1@7"},
			{"prune domains", Apply([]Document{{Domain: "d"}, {Domain: "f"}}, true), "11 e/a=1@2"},
			{"prune all", Apply([]Document{{Domain: "e"}}, true), "12"},
			{"nothing to prune", Apply([]Document{{Domain: "e"}}, true), "12"},
		} {
			before := s.State()
			old, next, err := s.Change(t.Context(), true, c.edit)
			if synctest.Wait(); s.State() != before {
				t.Errorf("%s: a dry run has changed something", c.what)
			}
			dry := fmt.Sprint(err)
			if err == nil {
				dry = briefState(next)
			}
			if err == nil && old.Revision != before.Revision {
				t.Errorf("%s: from %s", c.what, briefState(old))
			}
			_, next, err = s.Change(t.Context(), false, c.edit)
			got := fmt.Sprint(err)
			if err == nil {
				got = briefState(next)
				if s.Set().Hash() != next.Set.Hash() {
					t.Errorf("%s: has returned before it is in force", c.what)
				}
			} else if s.State() != before {
				t.Errorf("%s: refused, and yet changed", c.what)
			}
			if got != c.want || dry != c.want {
				t.Errorf("%s:\n got %s\n dry %s\nwant %s", c.what, got, dry, c.want)
			}
			if synctest.Wait(); briefState(other.State()) != briefState(s.State()) {
				t.Errorf("%s: elsewhere: %s", c.what, briefState(other.State()))
			}
			late, err := OpenStore(t.Context(), b.config(&runningStore{}))
			if err != nil || briefState(late.State()) != briefState(s.State()) {
				t.Errorf("%s: a late reader: %v", c.what, err)
			}
		}
		if len(other.sets) != 12 || other.metric(t, "weir_rules_loaded") != 0 || other.metric(t, "weir_rules_last_load_success") != 1 {
			t.Errorf("OnChange was called %d times", len(other.sets))
		}
	})
}

// Any number of concurrent changes, through any nodes, lose none.
func TestStoreConcurrentCreates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &memoryBackend{}
		stores := []*runningStore{b.open(t), b.open(t), b.open(t)}
		const each = 20
		var wait sync.WaitGroup
		for i, s := range stores {
			for j := range each {
				wait.Go(func() {
					if _, _, err := s.Change(t.Context(), false, Create("d", spec(fmt.Sprint(i, "-", j), 1))); err != nil {
						t.Error(err)
					}
				})
			}
		}
		wait.Wait()
		synctest.Wait()
		for _, s := range stores {
			state := s.State()
			seen := make(map[int64]bool)
			for r := range state.Set.Rules() {
				seen[state.RuleRevision(r.Domain, r.ID)] = true
			}
			if state.Set.Len() != 3*each || state.Revision != 3*each || len(seen) != 3*each {
				t.Errorf("%d rules of %d revisions at %d", state.Set.Len(), len(seen), state.Revision)
			}
		}
	})
}

func TestStoreGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &memoryBackend{}
		s := b.open(t)
		s.change(t, Create("d", spec("a", 1)))
		n := int64(1)
		b.Meddle = func() []byte {
			n++
			return stored(t, n, spec("a", n))
		}
		_, _, err := s.Change(t.Context(), false, Create("d", spec("b", 1)))
		want := "another caller has changed the rules meanwhile: all 32 attempts to store this change found that another change came first; try again"
		if !errors.Is(err, ErrChanged) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		// A change that expects another revision fails the first time.
		_, _, err = s.Change(t.Context(), false, Update("d", spec("a", 7), n))
		want = fmt.Sprintf(`another caller has changed the rules meanwhile: "a" in domain "d" is at revision %d, not %d`, n, n-1)
		if !errors.Is(err, ErrChanged) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	})
}

// What is stored and no good leaves the last good rules in force, is told once and
// not overwritten unless it lies behind them.
func TestStoreRefuses(t *testing.T) {
	for want, value := range badValues(t) {
		synctest.Test(t, func(t *testing.T) {
			good := stored(t, 5, spec("a", 1))
			b := &memoryBackend{Rules: inmemory.Rules{Value: good, Revision: 1}}
			s := b.open(t)
			before := s.State()
			b.Put(value)
			synctest.Wait()
			if s.State() != before || s.Err() == nil || !strings.Contains(s.Err().Error(), want) {
				t.Errorf("Err is %v, want %s; %s is in force", s.Err(), want, briefState(s.State()))
			}
			b.Put(slices.Clone(value)) // the same again
			synctest.Wait()
			if n := s.said("ERROR stored rules refused"); n != 1 || s.metric(t, "weir_rules_last_load_success") != 0 {
				t.Errorf("%s: logged %d times", want, n)
			}
			_, next, err := s.Change(t.Context(), false, Create("d", spec("b", 1)))
			if heals := strings.Contains(want, "etcd"); heals {
				if err != nil || briefState(next) != "6 d/a=1@5 d/b=1@6" || s.Err() != nil {
					t.Errorf("%s: the next change leads to %v, %v", want, err, s.Err())
				}
			} else if !errors.Is(err, ErrReadOnly) || !strings.Contains(err.Error(), want) || !bytes.Equal(b.Value, value) {
				t.Errorf("%s: a change: %v", want, err)
			}
			b.Put(good)
			synctest.Wait()
			b.Put(stored(t, 9, spec("c", 1)))
			synctest.Wait()
			if s.Err() != nil || briefState(s.State()) != "9 d/c=1@9" || s.metric(t, "weir_rules_last_load_success") != 1 {
				t.Errorf("%s: not good again: %v, %s", want, s.Err(), briefState(s.State()))
			}
			if value == nil {
				return
			}
			if _, err := OpenStore(t.Context(), (&memoryBackend{Rules: inmemory.Rules{Value: value}}).config(&runningStore{})); strings.Contains(want, "etcd") != (err == nil) {
				t.Errorf("%s: a node that starts: %v", want, err)
			}
		})
	}
}

// The last good value again is no change, and ends the alarm.
func TestStoreIsGoodAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := stored(t, 5, spec("a", 1))
		b := &memoryBackend{Rules: inmemory.Rules{Value: good, Revision: 1}}
		s := b.open(t)
		before := s.State()
		b.Put([]byte("bad"))
		synctest.Wait()
		b.Put(good)
		synctest.Wait()
		if s.Err() != nil || s.State() != before || len(s.sets) != 0 || s.said("INFO stored rules are those in force again") != 1 {
			t.Errorf("Err is %v, %d changes", s.Err(), len(s.sets))
		}
	})
}

// A store that is opened on a backend that was restored from a backup stays with the newer rules of its earlier run, names that, and
// writes all of them again with the next change.
func TestStoreKnowsNewerRules(t *testing.T) {
	const remedy = "; apply the rules through this node (weir rules apply --node n1:9090), which writes all of them again"
	known := stored(t, 5, spec("a", 5))
	for want, value := range map[string][]byte{
		"test: revision 5 of the rules is gone from etcd":                          nil,
		"test: etcd was restored: it has revision 4 of the rules after revision 5": stored(t, 4, spec("a", 4)),
		"test: etcd was restored: it has another revision 5 of the rules":          stored(t, 5, spec("a", 4)),
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &memoryBackend{inmemory.Rules{Value: value, Revision: 1}, known}
			s := b.open(t)
			b.Put(value)
			synctest.Wait()
			if s.Err() == nil || s.Err().Error() != want+remedy || briefState(s.State()) != "5 d/a=5@5" ||
				s.metric(t, "weir_rules_last_load_success") != 0 || s.metric(t, "weir_rules_loaded") != 1 {
				t.Errorf("%s: Err is %v, in force is %s", want, s.Err(), briefState(s.State()))
			}
			if n := s.said("stored rules refused, the last good ones stay"); n != 1 {
				t.Errorf("%s: it was logged %d times", want, n)
			}
			if got := s.change(t, Create("d", spec("b", 1))); got != 6 || briefState(s.State()) != "6 d/a=5@5 d/b=1@6" || s.Err() != nil {
				t.Errorf("%s: the next change leads to %s, %v", want, briefState(s.State()), s.Err())
			}
		})
	}
}

// To apply the rules in force is enough for a backend that has lost them, though it changes none.
func TestStoreWritesLostRulesAgain(t *testing.T) {
	known := stored(t, 5, spec("a", 5))
	for name, value := range map[string][]byte{"gone": nil, "older": stored(t, 4, spec("a", 4)), "another": stored(t, 5, spec("a", 4))} {
		synctest.Test(t, func(t *testing.T) {
			b := &memoryBackend{inmemory.Rules{Value: value, Revision: 1}, known}
			s := b.open(t)
			same := func(old *State) ([]Document, error) { return old.Set.Documents(), nil }
			if _, next, err := s.Change(t.Context(), true, same); err != nil || next.Revision != 6 || !bytes.Equal(b.Value, value) {
				t.Errorf("%s: dry: %v, revision %d", name, err, next.Revision)
			}
			for range 2 { // the second changes nothing
				if _, _, err := s.Change(t.Context(), false, same); err != nil {
					t.Fatal(err)
				}
				b.Put(b.Value)
				synctest.Wait()
				if s.Err() != nil || briefState(s.State()) != "6 d/a=5@5" || !bytes.Equal(b.Value, s.Stored()) {
					t.Errorf("%s: in force is %s, %v", name, briefState(s.State()), s.Err())
				}
			}
		})
	}
}

// What an earlier run has known is of no matter if the backend has the same or newer rules, or if it cannot be read.
func TestStoreKnowsOlderRules(t *testing.T) {
	value := stored(t, 5, spec("a", 5))
	for name, known := range map[string][]byte{
		"older": stored(t, 4, spec("a", 4)), "same": value, "unreadable": []byte("known"), "none": nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &memoryBackend{inmemory.Rules{Value: value, Revision: 1}, known}
			s := b.open(t)
			if s.Err() != nil || briefState(s.State()) != "5 d/a=5@5" || s.metric(t, "weir_rules_last_load_success") != 1 {
				t.Errorf("%s: Err is %v, in force is %s", name, s.Err(), briefState(s.State()))
			}
			if ignored := s.said("the rules of an earlier run cannot be read and are ignored") == 1; ignored != (name == "unreadable") {
				t.Errorf("%s: ignored: %v", name, ignored)
			}
		})
	}
}

func TestStoreWithoutBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &memoryBackend{}
		s := b.open(t)
		s.change(t, Create("d", spec("a", 1)))
		b.Err = errors.New("etcd is unreachable")
		if _, _, err := s.Change(t.Context(), false, Delete("d", "a", 0)); !errors.Is(err, b.Err) || briefState(s.State()) != "1 d/a=1@1" {
			t.Errorf("%v, %s", err, briefState(s.State()))
		}
		if _, err := OpenStore(t.Context(), b.config(&runningStore{})); !errors.Is(err, b.Err) {
			t.Errorf("opened: %v", err)
		}

		// What was stored, but does not come back in time, is no error.
		b.Err, b.Deaf = nil, true
		began := time.Now()
		if got := s.change(t, Create("d", spec("b", 1))); got != 2 || time.Since(began) != inForceWait {
			t.Errorf("revision %d after %v", got, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, next, err := s.Change(ctx, false, Create("d", spec("c", 1))); err != nil || briefState(next) != "3 d/a=1@1 d/b=1@2 d/c=1@3" {
			t.Errorf("changes do not build on what is stored: %v", err)
		}
	})
}

func TestStoreBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := (&memoryBackend{}).open(t)
		s.cfg.MaxSize = 200
		_, _, err := s.Change(t.Context(), false, Create("d", Spec{ID: "a", Limits: []LimitSpec{{Limit: 1, Window: "1s"}}, When: map[string]ConditionSpec{
			"x": {AnyOf: []string{"3fa8c1", "91b7e2", "c05d44", "77aa10", "e6f3b9", "18cd52", "5b0e97", "d2a46c", "40f8e1", "ab93d7"}},
		}}))
		if !errors.Is(err, ErrTooLarge) || !strings.HasPrefix(err.Error(), "the rules are too large for the store: compressed they have 2") || s.State().Revision != 0 {
			t.Errorf("got %v", err)
		}
		big := Document{Domain: "d"}
		for i := range maxRules * 3 / 4 {
			big.Rules = append(big.Rules, Spec{ID: fmt.Sprintf("%0120d", i), Limits: []LimitSpec{{Limit: 1, Window: "1s"}}})
		}
		_, _, err = s.Change(t.Context(), false, Apply([]Document{big}, false))
		if !errors.Is(err, ErrTooLarge) || !strings.HasSuffix(err.Error(), " bytes, more than 16777216") {
			t.Errorf("got %v", err)
		}
	})
}

func TestFileRefusesChanges(t *testing.T) {
	s := &Source{path: "/etc/weir/rules"}
	s.set.Store(parse(t, oneRule("{id: r, limits: [{limit: 1, window: 1s}]}")))
	_, _, err := s.Change(t.Context(), true, Delete("d", "r", 0))
	want := "rules cannot be changed through this node: it takes them from /etc/weir/rules; change them there, or start it without --rules"
	if !errors.Is(err, ErrReadOnly) || err.Error() != want {
		t.Errorf("got %v", err)
	}
	if got := s.State(); got.Set != s.Set() || got.Revision != 0 || got.RuleRevision("d", "r") != 0 {
		t.Errorf("state %s", briefState(got))
	}
}

// Reread reads what the registry has not told.
func TestRereadStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &memoryBackend{Rules: inmemory.Rules{Value: stored(t, 5, spec("a", 1)), Revision: 1}}
		s := b.open(t)
		b.Deaf = true
		b.Put(stored(t, 6, spec("a", 2)))
		synctest.Wait()
		if got := briefState(s.State()); got != "5 d/a=1@5" {
			t.Fatalf("without it: %s", got)
		}
		s.Reread()
		synctest.Wait()
		if got := briefState(s.State()); got != "6 d/a=2@6" {
			t.Errorf("in force: %s", got)
		}
		s.Reread()
		synctest.Wait()
		if s.said("those in force again") != 1 {
			t.Error("nothing is said of the same rules")
		}
		b.Err = errors.New("etcd is unreachable")
		s.Reread()
		synctest.Wait()
		if s.said("cannot be read again") != 1 {
			t.Error("nothing is said of an etcd that is away")
		}
	})
}

func TestDocumentsOfFile(t *testing.T) {
	docs, _, err := Options{}.ParseDocuments("f.yaml", []byte("domain: a\nrules: []\n---\ndomain: b\nrules: [{id: x, limits: [{limit: 1, window: 60s}]}]\n---\ndomain: a\nrules: []\n"))
	if err != nil || len(docs) != 2 || docs[0].Domain != "a" || len(docs[0].Rules) != 0 || docs[1].Domain != "b" || docs[1].Rules[0].Limits[0].Window != "1m" {
		t.Errorf("%v, %v", docs, err)
	}
	if _, _, err := (Options{}).ParseDocuments("f.yaml", nil); err == nil || !strings.HasPrefix(err.Error(), "f.yaml:1:1: the file is empty") {
		t.Errorf("nothing: %v", err)
	}
	if _, _, err := (Options{}).LoadDocuments(nil, "/no/such"); err == nil || !strings.Contains(err.Error(), "/no/such: stat: no such file") {
		t.Errorf("no file: %v", err)
	}
}

// TestEditsTwin compares sequences of edits with a map of limits and revisions.
func TestEditsTwin(t *testing.T) {
	type entry struct{ limit, revision int64 }
	rapid.Check(t, func(t *rapid.T) {
		s, state := new(Store), &State{Set: new(Set)}
		twin, revision := make(map[ruleName]entry), int64(0)
		domains, ids := rapid.SampledFrom([]string{"d", "e"}), rapid.SampledFrom([]string{"a", "b", "c"})
		for range rapid.IntRange(1, 20).Draw(t, "edits") {
			name := ruleName{domains.Draw(t, "domain"), ids.Draw(t, "id")}
			limit := rapid.Int64Range(1, 3).Draw(t, "limit")
			at := rapid.SampledFrom([]int64{0, twin[name].revision, revision}).Draw(t, "at")
			was, exists := twin[name]
			after := maps.Clone(twin)
			var edit Edit
			var refused error
			locked := func() error {
				switch {
				case !exists:
					return ErrNotFound
				case at != 0 && at != was.revision:
					return ErrChanged
				}
				return nil
			}
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				edit = Create(name.domain, spec(name.id, limit))
				after[name] = entry{limit, 0}
				if exists {
					refused = ErrExists
				}
			case 1:
				edit, refused = Update(name.domain, spec(name.id, limit), at), locked()
				after[name] = entry{limit, 0}
			case 2:
				edit, refused = Delete(name.domain, name.id, at), locked()
				delete(after, name)
			default:
				doc, prune := Document{Domain: name.domain}, rapid.Bool().Draw(t, "prune")
				for n := range after {
					if prune && n.domain == name.domain {
						delete(after, n)
					}
				}
				for _, id := range rapid.SliceOfDistinct(ids, rapid.ID[string]).Draw(t, "file") {
					doc.Rules = append(doc.Rules, spec(id, limit))
					after[ruleName{name.domain, id}] = entry{limit, 0}
				}
				edit = Apply([]Document{doc}, prune)
			}
			next, err := s.edit(state, edit)
			if !errors.Is(err, refused) || (err == nil) != (refused == nil) {
				t.Fatalf("got %v, want %v", err, refused)
			}
			if err != nil {
				continue
			}
			// Only what is different is at the next revision.
			for n, e := range after {
				if e.revision = twin[n].revision; twin[n].limit != e.limit {
					e.revision = revision + 1
				}
				after[n] = e
			}
			if next != state {
				revision++
			} else if !maps.Equal(after, twin) {
				t.Fatal("a change was not seen")
			}
			state, twin = next, after
			got := make(map[ruleName]entry)
			for r := range state.Set.Rules() {
				got[ruleName{r.Domain, r.ID}] = entry{r.Limits[0].Limit, state.RuleRevision(r.Domain, r.ID)}
			}
			if state.Revision != revision || !maps.Equal(got, twin) {
				t.Fatalf("got %v, want %v at %d", briefState(state), twin, revision)
			}
		}
	})
}
