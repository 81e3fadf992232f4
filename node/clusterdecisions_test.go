package node

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// Lines of several nodes are merged by their times, and a line without one stays behind the one before it. A log that ends before its
// time is named, with its last line whole; one that is too long ends none of the others.
func TestHourOfSeveralNodes(t *testing.T) {
	line := func(second int, user string) string { return lineAt(time.Unix(int64(second), 0), user, "posts", true) }
	long := `{"time":"1970-01-01T00:00:06Z",` + strings.Repeat("x", 3*maxHourLine) + "\n"
	h := &hourLog{close: func() error { return nil }, missing: []string{"Without d: no answer."}}
	ends := func() string { return "" }
	h.add("c", strings.NewReader(line(2, "c")+"torn\n"+line(5, "c")+long+line(7, "c")), ends)
	h.add("a", strings.NewReader(line(1, "a")+line(4, "a")+strings.TrimSuffix(line(8, "a"), "\n")), ends)
	h.add("b", io.MultiReader(strings.NewReader(line(3, "b")), iotest.ErrReader(errors.New("cut"))), func() string { return "no answer" })
	text, err := io.ReadAll(iotest.OneByteReader(h))
	if err != nil {
		t.Fatal(err)
	}
	want := line(1, "a") + line(2, "c") + "torn\n" + line(3, "b") + line(4, "a") + line(5, "c") + long[:maxHourLine] + "\n" + line(7, "c") + line(8, "a")
	if string(text) != want {
		t.Errorf("got\n%.3000s\nwant\n%.3000s", text, want)
	}
	if notes := strings.Join(h.notes(), " "); notes != "The lines are those of the nodes a, b, c. Only a part of b: no answer. Without d: no answer." {
		t.Error(notes)
	}
}
