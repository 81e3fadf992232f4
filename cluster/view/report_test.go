package view

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A report counts in its view and its term only, and not for another life.
func TestReportsCountOnlyInTheirView(t *testing.T) {
	a := Life{"a", 2}
	v := &View{Number: 7, Partitions: []Partition{{Owner: a, Term: 3}, {Owner: a, Term: 7}, {Owner: a, Term: 3}, {Owner: Life{"a", 1}, Term: 3}, {Owner: Life{"b", 1}, Term: 3}}}
	for _, tc := range []struct {
		adopted uint64
		settled []int // of partitions 0 to 4, if the report has 0, 1, 3 and 4
	}{{2, nil}, {3, []int{0}}, {6, []int{0}}, {7, []int{0, 1}}, {8, nil}} {
		r := Reports{{Life: a, Adopted: tc.adopted, Settled: Set{0, 2, 3}}}
		var settled []int
		for p := range v.Partitions {
			if r.settled(v, p) {
				settled = append(settled, p)
			}
		}
		if !slices.Equal(settled, tc.settled) {
			t.Errorf("by a report of view %d, %v have settled, want %v", tc.adopted, settled, tc.settled)
		}
		r[0].Complete = Set{1, 2}
		for p := range v.Partitions {
			if got := r.complete(v, p, a); got != (tc.adopted == 7 && p == 1) || r.complete(v, p, Life{"a", 1}) {
				t.Errorf("by a report of view %d, the copy of partition %d is complete: %t", tc.adopted, p, got)
			}
		}
		if r.adopted(a) != tc.adopted || r.adopted(Life{"a", 3}) != 0 {
			t.Errorf("%d is taken for adopted, want %d", r.adopted(a), tc.adopted)
		}
	}
}

// A set has what it was made of, as far as that matters, and is as short as it can be.
func TestSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		matters := rapid.SliceOfN(rapid.Bool(), 1, 50).Draw(t, "matters")
		in := rapid.SliceOfN(rapid.Bool(), len(matters), len(matters)).Draw(t, "in")
		s := setOf(len(matters), func(p int) (bool, bool) { return matters[p], in[p] })
		runs, last := 0, false
		for p := range matters {
			if !matters[p] {
				continue
			}
			if s.Has(p) != in[p] {
				t.Fatalf("%v has %d: %t", s, p, s.Has(p))
			}
			if in[p] != last {
				runs, last = runs+1, in[p]
			}
		}
		if len(s) != runs || !slices.IsSorted(s) {
			t.Fatalf("%v has %d entries, want %d", s, len(s), runs)
		}
	})
}

// The rule about Settled in the comment of Report: of an owner that has adopted any view up to this one, as of one whose later views are
// not known, the term in which it has settled is told by whether its partition is in the set. Terms change at any views, to any owners.
func TestSettledIsRelativeToAdopted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := Life{"a", 1}
		var views []*View
		for n := uint64(1); n <= 9; n++ {
			part := Partition{Owner: a, Term: 1}
			if n > 1 {
				part = views[n-2].Partitions[0]
			}
			if n > 1 && rapid.IntRange(0, 2).Draw(t, "moves") == 0 {
				part = Partition{Owner: rapid.SampledFrom([]Life{a, {"b", 1}}).Draw(t, "owner"), Term: n}
			}
			views = append(views, &View{Number: n, Members: []Member{{Life: a}}, Partitions: []Partition{part}})
		}
		adopted := rapid.SampledFrom(views).Draw(t, "adopted")
		term := rapid.Uint64Range(0, 9).Draw(t, "term") // in which it decides
		r, _ := Report{Life: a}.Following(adopted, Plan{{}}, func(p int) bool { return term == adopted.Partitions[p].Term }, func(int) bool { return false })
		for _, v := range views[adopted.Number-1:] {
			part := v.Partitions[0]
			want := part.Owner == a && part.Term == term && adopted.Partitions[0].Term == term
			if got := (Reports{r}).settled(v, 0); part.Owner == a && got != want {
				t.Fatalf("in view %d, with term %d, it has settled: %t; it decides in term %d, by view %d with term %d", v.Number, part.Term, got, term, adopted.Number, adopted.Partitions[0].Term)
			}
		}
	})
}

// Reports of a view follow each other by their revisions, and one that says the same is none.
func TestReportsFollow(t *testing.T) {
	v := &View{Number: 4, Members: []Member{{Life: Life{"a", 1}}, {Life: Life{"b", 1}}}, Partitions: []Partition{{Owner: Life{"a", 1}, Term: 1}, {Owner: Life{"b", 1}, Term: 4, Standby: Life{"a", 1}}, {Owner: Life{"b", 1}, Term: 4}}}
	plan := Plan{{"a", "b"}, {"b", "a"}, {"a", "b"}}
	decides, isComplete := []int{}, []int{}
	r := Report{Life: Life{"a", 1}}
	for i, step := range []struct {
		do   func()
		want string
		news bool
	}{
		{func() {}, "view 4, revision 0: [] []", true},
		{func() {}, "view 4, revision 0: [] []", false},
		{func() { decides = []int{0} }, "view 4, revision 1: [0] []", true},
		{func() { decides = []int{0, 1} }, "view 4, revision 1: [0] []", false}, // it is not the owner of 1
		{func() { isComplete = []int{0, 1} }, "view 4, revision 2: [0] [0 2]", true},
		{func() { isComplete = []int{2} }, "view 4, revision 3: [0] [2]", true}, // it learns 2
		{func() { isComplete = []int{1, 2} }, "view 4, revision 4: [0] [0]", true},
		{func() { decides, isComplete = nil, nil }, "view 4, revision 5: [] []", true},
		{func() { next := *v; next.Number, v = 5, &next }, "view 5, revision 0: [] []", true},
	} {
		step.do()
		before := r
		var news bool
		r, news = r.Following(v, plan, func(p int) bool { return slices.Contains(decides, p) }, func(p int) bool { return slices.Contains(isComplete, p) })
		if got := fmt.Sprintf("view %d, revision %d: %v %v", r.Adopted, r.Revision, r.Settled, r.Complete); got != step.want || news != step.news {
			t.Errorf("step %d: %s, news: %t; want %s, %t", i, got, news, step.want, step.news)
		}
		if news != (r.compareAge(&before) > 0) {
			t.Errorf("step %d: it is newer: %t", i, !news)
		}
	}
}

// Of each life that the view names the newest report is kept, in any order.
func TestNewestReports(t *testing.T) {
	var n NewestReports
	note := func(name string, adopted, revision uint64, want bool) {
		t.Helper()
		if got := n.Note(Report{Life: lifeOf(name), Adopted: adopted, Revision: revision}); got != want {
			t.Errorf("%s in view %d, revision %d: news: %t", name, adopted, revision, got)
		}
	}
	note("a", 5, 1, false) // there is no view yet
	v := &View{Number: 5, Members: []Member{{Life: lifeOf("a")}, {Life: lifeOf("b"), State: Gone}}, Electorate: Electorate{Before: lives("c"), GivenUp: lives("d"), Ended: lives("e")}}
	n.Keep(v)
	note("b", 5, 1, true)
	note("a", 0, 1, false)
	note("a", 4, 7, true)
	note("a", 4, 7, false)
	note("a", 5, 0, true)
	note("a", 4, 8, false)
	note("a", 5, 3, true)
	note("a", 5, 2, false)
	note("a", 9, 0, true) // it has adopted a view that is not known here
	note("a@2", 9, 1, false)
	note("d", 3, 0, true)
	note("c", 3, 0, true)
	note("e", 3, 0, false)
	all := n.All()
	n.Keep(&View{Number: 6, Members: v.Members[:1]})
	note("c", 4, 0, false)
	n.Note(Report{Life: lifeOf("a"), Adopted: 10})
	if got := fmt.Sprint(all); got != "[{{a 1} 9 0 [] []} {{b 1} 5 1 [] []} {{c 1} 3 0 [] []} {{d 1} 3 0 [] []}]" {
		t.Errorf("they are %s", got)
	}
	if got := fmt.Sprint(n.All()); got != "[{{a 1} 10 0 [] []}]" {
		t.Errorf("in the next view they are %s", got)
	}
}

// drawReports draws reports of a cluster with up to 300 partitions.
func drawReports(t *rapid.T) (r Reports, partitions int) {
	partitions = rapid.IntRange(1, 300).Draw(t, "partitions")
	set := rapid.Custom(func(t *rapid.T) Set {
		s := rapid.SliceOfNDistinct(rapid.Uint32Range(0, uint32(partitions-1)), 0, 40, rapid.ID).Draw(t, "set")
		slices.Sort(s)
		return s
	})
	for _, id := range rapid.SliceOfNDistinct(rapid.StringMatching(`(weir-|é|\x00)?[a-c0-9]{1,4}`), 0, 40, rapid.ID).Draw(t, "ids") {
		for i := range rapid.IntRange(1, 2).Draw(t, "lives") {
			r = append(r, Report{
				Life{id, rapid.Uint64Range(1, 5).Draw(t, "incarnation") + 9*uint64(i)}, rapid.Uint64Range(1, maxNumber).Draw(t, "adopted"), rapid.Uint64().Draw(t, "revision"),
				set.Draw(t, "settled"), set.Draw(t, "complete"),
			})
		}
	}
	slices.SortFunc(r, func(a, b Report) int { return compareLives(a.Life, b.Life) })
	return r, partitions
}

func TestReportsAreReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, partitions := drawReports(t)
		b := r.Append([]byte{42})
		if got, err := ParseReports(b[1:], partitions); err != nil || fmt.Sprint(got) != fmt.Sprint(r) {
			t.Fatalf("%v are read as %v, %v", r, got, err)
		}
	})
}

// With 100 members and 4096 partitions a report takes 8 bytes once all is calm, and stays small while all copies are on their way.
func TestSizesOfReports(t *testing.T) {
	const members, partitions = 100, 4096
	random := rand.New(rand.NewPCG(1, 2))
	v := &View{Number: 1000, Partitions: make([]Partition, partitions)}
	for i := range members {
		v.Members = append(v.Members, Member{Life: Life{fmt.Sprintf("weir-%02d", i), 3}})
	}
	plan := make(Plan, partitions)
	for p := range v.Partitions {
		i := random.Perm(members)
		v.Partitions[p] = Partition{Owner: v.Members[i[0]].Life, Term: 900, Standby: v.Members[i[1]].Life}
		plan[p] = Place{v.Members[i[0]].ID, v.Members[i[1]].ID}
	}
	for _, tc := range []struct {
		what string
		is   func(int) bool
		most int // bytes of each
	}{
		{"all have settled, and all copies are complete", func(int) bool { return true }, 9},
		{"all have just adopted the view", func(int) bool { return false }, 9},
		{"half of all have settled or are complete", func(int) bool { return random.IntN(2) == 0 }, 90},
	} {
		var n NewestReports
		n.Keep(v)
		for _, m := range v.Members {
			r, _ := Report{Life: m.Life}.Following(v, plan, tc.is, tc.is)
			n.Note(r)
		}
		b := n.All().Append(nil)
		t.Logf("%s: %d bytes, %.1f for each of %d members", tc.what, len(b), float64(len(b))/members, members)
		if len(b) > tc.most*members {
			t.Errorf("%s: %d bytes are more than %d", tc.what, len(b), tc.most*members)
		}
	}
}

// Reports are refused unless they are as they are written: the error names the report, the field and its value.
func TestInvalidReports(t *testing.T) {
	const partitions = 10
	one := []byte{1, 7, 0, 1, 'a', 1, 0, 0, 0, 0} // a in its first life, view 7
	with := func(at int, b ...byte) []byte { return slices.Concat(one[:at], b, one[at+1:]) }
	if _, err := ParseReports(one, partitions); err != nil {
		t.Fatal(err)
	}
	many := slices.Repeat([]byte{0xff}, 10)
	for _, tc := range []struct {
		b    []byte
		want string
	}{
		{nil, "reports: it ends within a number"},
		{with(0, 0xff, 0xff, 0xff, 0x7f), "reports: 268435455 is above 131136"},
		{with(0, 0x81, 0), "reports: 1 stands in 2 bytes, which are too many"},
		{with(1, many...), "highest view: it ends within a number"},
		{with(1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f), "highest view: 18014398509481983 is above 9007199254740991"},
		{with(0, 2), "reports[1] (@0): common bytes of the id: it ends within a number"},
		{append(slices.Clone(one), 0), "1 bytes follow the 1 reports"},
		{with(2, 1), "reports[0] (@0): common bytes of the id: 1 is above 0"},
		{with(3, 0x81, 1), "reports[0] (@0): id: 129 is above 128"},
		{with(3, 7), "reports[0] (@0): id: it ends 1 bytes before the end of the text"},
		{slices.Concat(one[:3], []byte{0}, one[5:]), `reports[0] (): id: "" is not text of 1 to 128 bytes`},
		{with(4, 0xff), "reports[0] (\xff): id: \"\\xff\" is not text of 1 to 128 bytes"},
		{with(5, 0), "reports[0] (a@0): incarnation: 0 is none"},
		{with(6, 8), "reports[0] (a): views below the highest: 8 is above 7"},
		{with(6, 7), "reports[0] (a): adopted: 0 is none"},
		{with(8, 21), "reports[0] (a): settled: 21 is above 20"},
		{with(8, 4, 8, 0), "reports[0] (a): settled: 10 is no partition of 10"},
		{with(9, 2, 9), "reports[0] (a): complete: 10 is no partition of 10"},
		{with(9, 2), "reports[0] (a): complete: it ends within a number"},
		{slices.Concat([]byte{2}, one[1:], one[2:]), "reports[1] (a): it does not come after a: reports are sorted by id and incarnation, each once"},
	} {
		if _, err := ParseReports(tc.b, partitions); fmt.Sprint(err) != tc.want {
			t.Errorf("%x: %v, want %s", tc.b, err, tc.want)
		}
	}
	if r, err := ParseReports(with(8, 4, 7, 0), partitions); err != nil || fmt.Sprint(r[0].Settled) != "[8 9]" {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := ParseReports((Reports{{Life: Life{strings.Repeat("x", 128), 1}, Adopted: maxNumber}}).Append(nil), partitions); err != nil {
		t.Error(err)
	}
}

func FuzzReports(f *testing.F) {
	f.Add((Reports{{Life{"a", 1}, 7, 3, Set{0}, Set{2, 3, 9}}, {Life{"ab", 1}, 6, 0, nil, Set{1}}}).Append(nil), uint16(10))
	f.Fuzz(func(t *testing.T, b []byte, partitions uint16) {
		r, err := ParseReports(b, int(partitions))
		if err != nil {
			return
		}
		again, err := ParseReports(r.Append(nil), int(partitions))
		if err != nil || fmt.Sprint(again) != fmt.Sprint(r) {
			t.Errorf("%x is read as %v, written and read as %v, %v", b, r, again, err)
		}
		for i := range r {
			if s := r[i].Settled; !slices.IsSorted(s) || len(s) > 0 && int(s[len(s)-1]) >= int(partitions) {
				t.Errorf("%v are no partitions of %d", s, partitions)
			}
		}
	})
}
