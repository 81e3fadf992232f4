package rules

import (
	"bytes"
	"compress/gzip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/internal/inmemory"
)

// stored is what a store of this software writes.
func stored(t *testing.T, revision int64, specs ...Spec) []byte {
	t.Helper()
	set, err := Compile("x", []Document{{Domain: "d", Rules: specs}})
	if err != nil {
		t.Fatal(err)
	}
	s := &State{Set: set, Revision: revision, changed: make(map[ruleName]int64)}
	for r := range set.Rules() {
		s.changed[ruleName{r.Domain, r.ID}] = revision
	}
	value, err := s.marshal(testMaxSize)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// wrap makes a stored value of a body.
func wrap(t *testing.T, head string, body []byte) []byte {
	t.Helper()
	b := bytes.NewBufferString(head)
	z := gzip.NewWriter(b)
	if _, err := z.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// badValues are stored values that no store takes, and why.
func badValues(t *testing.T) map[string][]byte {
	const head = "weir rules 1\n"
	good := stored(t, 5, spec("a", 1))
	bomb := wrap(t, head, make([]byte, 4*maxStored))
	return map[string][]byte{
		"test: these are no rules of weir": []byte("domain: d\nrules: []\n"),
		`test: the rules have the format "2", and this node reads format 1: another version of weir has written them, install that one on this node`: wrap(t, "weir rules 2\n", []byte("{}")),
		`test: the rules have the format "0", and this node reads format 1: another version of weir has written them, install that one on this node`: wrap(t, "weir rules 0\n", []byte("{}")),
		"test: the rules are damaged: gzip: invalid header":                        []byte(head + "not compressed"),
		"test: the rules are damaged: unexpected EOF":                              good[:len(good)-1],
		"test: the rules are damaged: gzip: invalid checksum":                      append(slices.Clone(good[:len(good)-8]), make([]byte, 8)...),
		"test: the rules are damaged: more than 16777216 bytes when decompressed":  bomb[:len(bomb)-100], // no version reads so far
		`another version of weir has written them: json: unknown field "new"`:      wrap(t, head, []byte(`{"revision":6,"new":1}`)),
		`another version of weir has written them: json: unknown field "colour"`:   wrap(t, head, []byte(`{"revision":6,"documents":[{"domain":"d","rules":[{"id":"r","colour":"red"}]}]}`)),
		"test: the rules are damaged: revision 0 is below 1":                       wrap(t, head, []byte(`{"documents":[]}`)),
		`test: rule "r": limits[0].algorithm: "new" is not an algorithm`:           wrap(t, head, []byte(`{"revision":6,"documents":[{"domain":"d","rules":[{"id":"r","limits":[{"limit":1,"window":"1s","algorithm":"new"}]}]}]}`)),
		"test: revision 5 of the rules is gone from etcd":                          nil,
		"test: etcd was restored: it has revision 4 of the rules after revision 5": stored(t, 4, spec("a", 1)),
		"test: etcd was restored: it has another revision 5 of the rules":          stored(t, 5, spec("a", 2)),
	}
}

func TestStoredRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set, err := Compile("x", someDocuments(t))
		if err != nil {
			t.Fatal(err)
		}
		s := &State{Set: set, Revision: rapid.Int64Min(1).Draw(t, "revision"), changed: make(map[ruleName]int64)}
		for r := range set.Rules() {
			s.changed[ruleName{r.Domain, r.ID}] = rapid.Int64Range(1, s.Revision).Draw(t, "changed")
		}
		value, err := s.marshal(testMaxSize)
		if err != nil {
			t.Fatal(err)
		}
		back, err := unmarshal("x", value, Options{})
		if err != nil || briefState(back) != briefState(s) || back.Set.Hash() != set.Hash() {
			t.Fatalf("%v\n got %s\nwant %s", err, briefState(back), briefState(s))
		}
	})
}

// A node starts with stored rules that no request can match, and warns of them: the version
// before had accepted them. The next change needs them right.
func TestStoredRulesThatNeverMatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		value := stored(t, 5, spec("a", 1))
		data, err := decompressUpTo(value[bytes.IndexByte(value, '\n')+1:], maxStored)
		if err != nil {
			t.Fatal(err)
		}
		old := strings.Replace(string(data), `"id":"a",`, `"id":"a","when":{"ip":{"any_of":["localhost"]}},"per":[["identifier"]],`, 1)
		b := &memoryBackend{Rules: inmemory.Rules{Value: wrap(t, storedMark+storedFormat+"\n", []byte(old)), Revision: 1}}
		s := b.open(t)
		if got := briefState(s.State()); got != "5 d/a=1@5" || s.said("WARN rules: test: rule") != 2 {
			t.Errorf("in force: %s", got)
		}
		_, _, err = s.Change(t.Context(), false, Create("d", spec("b", 1)))
		if err == nil || !strings.Contains(err.Error(), `rule "a": per[0]: "identifier" is a field of requests`) {
			t.Errorf("a change with them: %v", err)
		}
		if got := s.change(t, Update("d", spec("a", 2), 0)); got != 6 {
			t.Errorf("revision %d after they were mended", got)
		}
	})
}

// A rule whose name no path can hold stays in force where it is stored, and can be deleted.
func TestStoredNamesInvalidInPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		value := stored(t, 5, spec("a", 1))
		data, err := decompressUpTo(value[bytes.IndexByte(value, '\n')+1:], maxStored)
		if err != nil {
			t.Fatal(err)
		}
		old := strings.ReplaceAll(string(data), `"a"`, `"a//b"`)
		b := &memoryBackend{Rules: inmemory.Rules{Value: wrap(t, storedMark+storedFormat+"\n", []byte(old)), Revision: 1}}
		s := b.open(t)
		if got := briefState(s.State()); got != "5 d/a//b=1@5" || s.said("cannot stand in a path") != 1 {
			t.Errorf("in force: %s", got)
		}
		if got := s.change(t, Delete("d", "a//b", 0)); got != 6 {
			t.Errorf("revision %d after it was deleted", got)
		}
	})
}

func FuzzStored(f *testing.F) {
	f.Add([]byte("weir rules 1\n"))
	f.Add([]byte(`{"revision":6,"documents":[{"domain":"d","rules":[{"id":"r","limits":[{"limit":1,"window":"1s"}]}]}],"changed":{"d":{"r":3}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, value := range [][]byte{body, wrap(t, "weir rules 1\n", body)} {
			s, err := unmarshal("x", value, Options{})
			if err != nil {
				continue
			}
			again, err := s.marshal(testMaxSize)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := unmarshal("x", again, Options{}); err != nil || briefState(back) != briefState(s) {
				t.Errorf("%v: %s", err, briefState(s))
			}
		}
	})
}
