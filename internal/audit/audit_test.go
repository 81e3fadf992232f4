package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// No text that a caller chooses ends a line, or has a character that is not printable ASCII.
func TestLinesCannotBeForged(t *testing.T) {
	var to bytes.Buffer
	l := New("a", &to)
	forged := "x\n{\"action\":\"forged\"}\r\x1b[2J\x7f\u0085\u009b\u2028\u202e\U0001F600\xff\x00"
	l.Record(Entry{Time: time.Unix(1, 0), Client: forged, From: forged, Action: forged, Target: forged, Reason: forged, Outcome: "OK"})
	line, rest, _ := strings.Cut(to.String(), "\n")
	if rest != "" {
		t.Fatalf("more than one line: %q", rest)
	}
	for _, b := range []byte(line) {
		if b < ' ' || b > '~' {
			t.Fatalf("byte %#x in %q", b, line)
		}
	}
	var e Entry
	if err := json.Unmarshal([]byte(line), &e); err != nil || e.Node != "a" || e.Target != strings.ToValidUTF8(forged, "\uFFFD") {
		t.Errorf("%v: %q", err, e.Target)
	}
}

func TestTheLastEntriesAreKept(t *testing.T) {
	l := New("a", nil)
	for i := range 2*maxEntries + 7 {
		l.Record(Entry{Target: fmt.Sprint(i)})
	}
	entries := l.Entries()
	if len(entries) != maxEntries || entries[0].Target != fmt.Sprint(maxEntries+7) || entries[maxEntries-1].Target != fmt.Sprint(2*maxEntries+6) {
		t.Errorf("%d from %s to %s", len(entries), entries[0].Target, entries[len(entries)-1].Target)
	}
	l.Record(Entry{Target: strings.Repeat("x", 10*maxField)})
	if got := l.Entries()[maxEntries-1].Target; len(got) > maxField+3 {
		t.Errorf("a field has %d bytes", len(got))
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestALineThatCannotBeWritten(t *testing.T) {
	l := New("a", broken{})
	if l.Err() != nil {
		t.Error(l.Err())
	}
	l.Record(Entry{Target: "x"})
	if l.Err() == nil || len(l.Entries()) != 1 {
		t.Errorf("%v, %d entries", l.Err(), len(l.Entries()))
	}
	var none *Log
	none.Record(Entry{})
	if none.Entries() != nil || none.Err() != nil {
		t.Error("a nil Log has something")
	}
}

// Lines say their version.
func TestLineHasAVersion(t *testing.T) {
	if line := string(Line(Entry{Node: "a"})); !strings.HasPrefix(line, `{"version":1,"time":`) {
		t.Error(line)
	}
}
