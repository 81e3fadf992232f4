package view

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/ring"
)

// exampleView has all that a view can have.
func exampleView() *View {
	return &View{
		Number: 7,
		Members: []Member{
			{Life{"a", 1}, "a:1", Gone}, {Life{"a", 2}, "a:1", Ready}, {Life{"b", 1}, "b:1", Leaving}, {Life{"c", 3}, "c:1", Ready},
		},
		Partitions: []Partition{
			{Owner: Life{"a", 2}, Term: 7, Predecessors: lives("b", "a")},
			{Owner: Life{"b", 1}, Term: 1, Standby: Life{"c", 3}},
			{Owner: Life{"c", 3}, Term: 6, Standby: Life{"b", 1}, Predecessors: lives("b")},
		},
		Electorate: Electorate{Changed: 5, Before: lives("a", "b", "d"), Ended: lives("d"), Waived: 4, GivenUp: lives("e")},
	}
}

// drawView draws any view that is as it should be.
func drawView(t *rapid.T) *View {
	number := rapid.Uint64Range(1, maxNumber).Draw(t, "number")
	v := &View{Number: number, Partitions: make([]Partition, rapid.IntRange(1, 40).Draw(t, "partitions"))}
	for i := range rapid.IntRange(1, 200).Draw(t, "members") {
		l := Life{fmt.Sprintf("%s%03d", rapid.StringMatching(`[a-zé"<]{0,3}`).Draw(t, "id"), i), rapid.Uint64Range(1, 9).Draw(t, "incarnation")}
		v.Members = append(v.Members, Member{l, "h:1", rapid.SampledFrom([]State{Ready, Leaving, Gone}).Draw(t, "state")})
	}
	v.Members[0].State = Ready
	sortMembers(v.Members)
	some := rapid.SampledFrom(v.Members)
	for p := range v.Partitions {
		part := &v.Partitions[p]
		part.Owner, part.Term = some.Draw(t, "owner").Life, rapid.Uint64Range(1, number).Draw(t, "term")
		if l := some.Draw(t, "standby").Life; l != part.Owner {
			part.Standby = l
		}
		for _, m := range rapid.SliceOfNDistinct(some, 0, 3, func(m Member) Life { return m.Life }).Draw(t, "predecessors") {
			if m.Life != part.Owner {
				part.Predecessors = append(part.Predecessors, m.Life)
			}
		}
	}
	v.Changed, v.Waived = rapid.Uint64Range(1, number).Draw(t, "changed"), rapid.Uint64Range(0, number).Draw(t, "waived")
	v.Before, v.GivenUp = lives("x", "y@2"), rapid.SampledFrom([][]Life{nil, lives("z")}).Draw(t, "given up")
	v.Ended = rapid.SampledFrom([][]Life{nil, lives("x"), v.Lives()}).Draw(t, "ended")
	return v
}

func TestViewsAreReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawView(t)
		b, err := Marshal(v)
		if err != nil {
			t.Fatalf("%+v: %v", v, err)
		}
		if got, err := Unmarshal(b); err != nil || fmt.Sprint(got) != fmt.Sprint(v) {
			t.Fatalf("%s is read as %+v, %v; it is %+v", b, got, err, v)
		}
	})
}

// Neither Marshal nor Unmarshal accepts a view that is not as it should be: the error names the field and its value.
func TestInvalidViews(t *testing.T) {
	long := strings.Repeat("x", ring.MaxMemberName+1)
	for want, spoil := range map[string]func(v *View){
		"number: 0 is not between 1 and 9007199254740991":                                                 func(v *View) { v.Number = 0 },
		"number: 9007199254740992 is not between 1 and 9007199254740991":                                  func(v *View) { v.Number = maxNumber + 1 },
		"partitions: 0 is not between 1 and 65536":                                                        func(v *View) { v.Partitions = nil },
		"partitions: 65537 is not between 1 and 65536":                                                    func(v *View) { v.Partitions = make([]Partition, maxPartitions+1) },
		"members: 65537 are more than 65536":                                                              func(v *View) { v.Members = make([]Member, maxMembers+1) },
		"members: none of 4 is ready":                                                                     func(v *View) { v.Members[1].State, v.Members[3].State = Leaving, Gone },
		"members[3] (b): it does not come after b: members are sorted by id and incarnation, each once":   func(v *View) { v.Members[3].Life = Life{"b", 1} },
		"members[2] (a): it does not come after a@2: members are sorted by id and incarnation, each once": func(v *View) { v.Members[2].Life = Life{"a", 1} },
		"members[1] (a@2): another life of the same id is a member that is not gone":                      func(v *View) { v.Members[0].State = Leaving },
		"members[3] (@3): id: \"\" is not text of 1 to 128 bytes":                                         func(v *View) { v.Members[3].ID = "" },
		"members[3] (" + long + `@3): id: "` + long[:40] + `" is not text of 1 to 128 bytes`:              func(v *View) { v.Members[3].ID = long },
		"members[3] (c\xff@3): id: \"c\\xff\" is not text of 1 to 128 bytes":                              func(v *View) { v.Members[3].ID = "c\xff" },
		"members[3] (c@0): incarnation: 0 is none":                                                        func(v *View) { v.Members[3].Incarnation = 0 },
		"members[3] (c@3): address: \"\" is not text of 1 to 300 bytes":                                   func(v *View) { v.Members[3].Address = "" },
		"members[3] (c@3): address: \"" + long[:40] + "\" is not text of 1 to 300 bytes":                  func(v *View) { v.Members[3].Address = strings.Repeat(long, 3) },
		"members[3] (c@3): state: \"left\" is not ready, leaving or gone":                                 func(v *View) { v.Members[3].State = Left },
		"partition 1: owner: d is not among the members":                                                  func(v *View) { v.Partitions[1].Owner = Life{"d", 1} },
		"partition 1: owner: @0 is not among the members":                                                 func(v *View) { v.Partitions[1].Owner = Life{} },
		"partition 1: standby: c is not among the members":                                                func(v *View) { v.Partitions[1].Standby = Life{"c", 1} },
		"partition 1: standby: b is the owner":                                                            func(v *View) { v.Partitions[1].Standby = Life{"b", 1} },
		"partition 1: term: 0 is not between 1 and 7":                                                     func(v *View) { v.Partitions[1].Term = 0 },
		"partition 1: term: 8 is not between 1 and 7":                                                     func(v *View) { v.Partitions[1].Term = 8 },
		"partition 0: predecessors: 65 are more than 64":                                                  func(v *View) { v.Partitions[0].Predecessors = make([]Life, 65) },
		"partition 0: predecessors: a@3 is not among the members":                                         func(v *View) { v.Partitions[0].Predecessors = lives("a@3") },
		"partition 0: predecessors: a@2 is the owner":                                                     func(v *View) { v.Partitions[0].Predecessors = lives("b", "a@2") },
		"partition 0: predecessors: b stands there twice":                                                 func(v *View) { v.Partitions[0].Predecessors = lives("b", "a", "b") },
		"changed: 0 is not between 1 and 7":                                                               func(v *View) { v.Changed = 0 },
		"changed: 8 is not between 1 and 7":                                                               func(v *View) { v.Changed = 8 },
		"waived: 8 is above 7":                                                                            func(v *View) { v.Waived = 8 },
		"before: it is empty, and changed is 5":                                                           func(v *View) { v.Before = nil },
		"before: a does not come after b: they are sorted by id, each once":                               func(v *View) { v.Before = lives("b", "a") },
		"before: b@2 does not come after b: they are sorted by id, each once":                             func(v *View) { v.Before = lives("b", "b@2") },
		"before[1] (b@0): incarnation: 0 is none":                                                         func(v *View) { v.Before = lives("a", "b@0") },
		"ended: x is neither a member nor in before":                                                      func(v *View) { v.Ended = lives("d", "x") },
		"ended: d stands there twice":                                                                     func(v *View) { v.Ended = lives("d", "d") },
		"given_up: 65 are more than 64":                                                                   func(v *View) { v.GivenUp = make([]Life, 65) },
		"given_up: e stands there twice":                                                                  func(v *View) { v.GivenUp = lives("e", "e") },
	} {
		v := exampleView()
		spoil(v)
		want := fmt.Sprintf("view %d: %s", v.Number, want)
		if _, err := Marshal(v); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := Marshal(exampleView()); err != nil {
		t.Fatal(err)
	}
}

// alter returns what is stored of a view after a change, with the right checksum.
func alter(t *testing.T, v *View, change func(s *stored)) []byte {
	t.Helper()
	b, err := Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var s stored
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	change(&s)
	if s.Checksum, err = s.sum(); err != nil {
		t.Fatal(err)
	}
	if b, err = json.Marshal(s); err != nil {
		t.Fatal(err)
	}
	return b
}

// What is stored is refused unless all of it is as Marshal writes it.
func TestInvalidStoredViews(t *testing.T) {
	table := func(b ...byte) func(s *stored) {
		return func(s *stored) { s.Table = base64.StdEncoding.EncodeToString(b) }
	}
	for want, change := range map[string]func(s *stored){
		"partitions: 0 is not between 1 and 65536, or too many for a table of 14 bytes":     func(s *stored) { s.Partitions = 0 },
		"partitions: 65537 is not between 1 and 65536, or too many for a table of 14 bytes": func(s *stored) { s.Partitions = 65537 },
		"partitions: 18 is not between 1 and 65536, or too many for a table of 14 bytes":    func(s *stored) { s.Partitions = 18 },
		"table: partition 3: owner: it ends within a number":                                func(s *stored) { s.Partitions = 4 },
		"table: 5 bytes follow its 2 partitions":                                            func(s *stored) { s.Partitions = 2 },
		"table: illegal base64 data at input byte 1":                                        func(s *stored) { s.Table = "A*AA" },
		"table: partition 0: owner: 4 is above 3":                                           table(4, 0, 0, 0),
		"table: partition 0: owner: 1 stands in 2 bytes, which are too many":                table(0x81, 0, 0, 0),
		"table: partition 0: owner: it ends within a number":                                table(0xff, 0xff, 0xff),
		"table: partition 0: age of the term: 14 is above 13":                               table(1, 14, 0, 0),
		"table: partition 0: standby: 5 is above 4":                                         table(1, 0, 5, 0),
		"table: partition 0: predecessors: 0 has a flag":                                    table(1, 1, 0, 0),
		"table: partition 0: predecessors: 65 is above 64":                                  table(1, 1, 0, 65),
		"table: partition 0: predecessor: 4 is above 3":                                     table(1, 1, 0, 1, 4),
		"table: partition 0: predecessor: it ends within a number":                          table(1, 1, 0, 1),
		"partition 0: predecessors: a@2 is the owner":                                       table(1, 1, 0, 1, 1, 1, 0, 0, 1, 0, 0),
		`members[1] (a@2): state: "lost" is not ready, leaving or gone`:                     func(s *stored) { s.Members[1].State = "lost" },
		`members[1] (a@2): state: "left" is not ready, leaving or gone`:                     func(s *stored) { s.Members[1].State = "left" },
		"members: 65537 are more than 65536":                                                func(s *stored) { s.Members = make([]storedMember, maxMembers+1) },
		"table: partition 0: there are no members":                                          func(s *stored) { s.Members = nil },
		"number: 0 is not between 1 and 9007199254740991":                                   func(s *stored) { s.Number = 0 },
		"changed: 8 is not between 1 and 7":                                                 func(s *stored) { s.Electorate.Changed = 8 },
	} {
		b := alter(t, exampleView(), change)
		var h header
		if err := json.Unmarshal(b, &h); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("view %d: %s", h.Number, want)
		if _, err := Unmarshal(b); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A view with one bit changed is refused, and so is all that is no view, with a reason.
func TestDamagedViews(t *testing.T) {
	v := exampleView()
	b, err := Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		damaged := append([]byte(nil), b...)
		damaged[i] ^= 1
		if other, err := Unmarshal(damaged); err == nil && fmt.Sprint(other) != fmt.Sprint(v) {
			t.Fatalf("byte %d damaged: %s is read as %+v", i, damaged, other)
		}
	}
	text := string(b)
	for damaged, want := range map[string]string{
		"":        "view: unexpected end of JSON input",
		text[:50]: "view: unexpected end of JSON input",
		strings.Replace(text, `"version":2,`, `"version":2,"more":1,`, 1):  `view 7: json: unknown field "more"`,
		strings.Replace(text, `"number":7`, `"number":-7`, 1):              "view: json: cannot unmarshal number -7 into Go struct field header.number of type uint64",
		strings.Replace(text, `"state":"gone"`, `"state":"ready"`, 1):      "view 7: checksum is ",
		strings.Replace(text, `"version":2,`, `"version":3,"more":1,`, 1):  "view 7 is of version 3 of its format, and this node reads version 2: a newer version of weir has written it, install that one on this node",
		strings.Replace(text, `"version":2,`, `"version":1,"epochs":1`, 1): "view: invalid character",
		strings.Replace(text, `"version":2,`, `"version":1,`, 1):           "view 7 is of version 1 of its format, and this node reads version 2: an older version of weir has written it, start this node with that one",
		strings.Replace(text, `"version":2,`, ``, 1):                       "view 7 is of version 0 of its format, and this node reads version 2: an older version of weir has written it, start this node with that one",
	} {
		_, err := Unmarshal([]byte(damaged))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", damaged, err, want)
		}
		if _, other := errors.AsType[*VersionError](err); other != strings.Contains(want, "is of version") {
			t.Errorf("%.60s: %T", damaged, err)
		}
	}
}

// The size of views in etcd, in a cluster that has just reached its plan, and one whose terms are long ago.
func TestSizesOfViews(t *testing.T) {
	const partitions = 4096
	for _, tc := range []struct {
		members, most int // most is a bound on the bytes
	}{{3, 23_000}, {32, 26_000}, {100, 33_000}} {
		for _, age := range []uint64{1, 1000} {
			v := &View{Number: age + 10, Partitions: make([]Partition, partitions), Electorate: Electorate{Changed: 2, Before: lives("x")}}
			for i := range tc.members {
				v.Members = append(v.Members, Member{Life{fmt.Sprintf("weir-%03d", i), 1}, fmt.Sprintf("weir-%03d.weir.default.svc.cluster.local:9090", i), Ready})
			}
			for p := range v.Partitions {
				v.Partitions[p] = Partition{Owner: v.Members[p%tc.members].Life, Term: 1 + uint64(p%10), Standby: v.Members[(p+1)%tc.members].Life}
			}
			b, err := Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d members, %d partitions, terms up to %d views ago: %d bytes", tc.members, partitions, v.Number-1, len(b))
			if len(b) > tc.most {
				t.Errorf("%d members: %d bytes are more than %d", tc.members, len(b), tc.most)
			}
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	b, err := Marshal(exampleView())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := Unmarshal(b)
		if err != nil {
			return
		}
		if again, err := Marshal(v); err != nil {
			t.Errorf("accepted but cannot be written: %v", err)
		} else if same, err := Unmarshal(again); err != nil || fmt.Sprint(same) != fmt.Sprint(v) {
			t.Errorf("accepted, written and read as %+v, %v", same, err)
		}
	})
}

// Any bytes are refused as the table of a view, or are what is written of it. The checksum hides the table from FuzzUnmarshal.
func FuzzTable(f *testing.F) {
	f.Add(exampleView().appendTable(nil), 3)
	f.Fuzz(func(t *testing.T, table []byte, partitions int) {
		s := stored{header: header{formatVersion, 7}, Partitions: partitions, Table: base64.StdEncoding.EncodeToString(table)}
		for _, m := range exampleView().Members {
			s.Members = append(s.Members, storedMember{m.Life, m.Address, m.State.String()})
		}
		v, err := s.view()
		if err != nil {
			return
		}
		if again := v.appendTable(nil); string(again) != string(table) {
			t.Errorf("%x is read as %+v, which is written as %x", table, v.Partitions, again)
		}
	})
}
