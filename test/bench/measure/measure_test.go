package measure

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const output = `goos: linux
cpu: Some CPU
BenchmarkA/exact-10 	  300000	       598.8 ns/op	        73.26 rss-B/key	       0 allocs/op
BenchmarkA/exact-10-2 	  300000	       300 ns/op
BenchmarkA/exact-10-2 	  300000	       400 ns/op
BenchmarkA/exact-10-2 	  300000	       200 ns/op
PASS
ok  	example.com/a	33.933s
`

func TestParse(t *testing.T) {
	got, err := parse(strings.NewReader(output), []int{1, 2})
	want := Results{
		"BenchmarkA/exact-10@1": {"ns/op": {598.8}, "rss-B/key": {73.26}, "allocs/op": {0}},
		"BenchmarkA/exact-10@2": {"ns/op": {300, 400, 200}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	for unit, want := range map[string]bool{"ns/op": true, "x": false} {
		median, ok := got.Median("BenchmarkA/exact-10@2", unit)
		if ok != want || want && median != 300 {
			t.Errorf("%s: median %v, %v", unit, median, ok)
		}
	}
	one, err := parse(strings.NewReader("BenchmarkA/exact-10 1 2 ns/op\n"), []int{2})
	if err != nil || one["BenchmarkA/exact-10"] == nil {
		t.Errorf("got %v, %v", one, err)
	}
	if _, err := parse(strings.NewReader("BenchmarkA 1 x ns/op\n"), []int{2}); err == nil {
		t.Error("a value that is none is no error")
	}
}

// TestWeir runs something else that prints JSON and ends with a code.
func TestWeir(t *testing.T) {
	fake := filepath.Join(t.TempDir(), "weir")
	script := "#!/bin/sh\necho '{\"a\": 1.5, \"b\": {\"c\": {\"d\": 2}}, \"back\": true, \"gone\": false, \"text\": \"x\"}'\nexit $1\n"
	if err := os.WriteFile(fake, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	want := Results{"n": {"a": {1.5}, "b.c.d": {2}, "back": {1}, "gone": {0}}}
	for _, code := range []string{"0", "1"} {
		if got, err := Weir(t.Context(), fake, "n", code); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("exit code %s: got %v, %v", code, got, err)
		}
	}
	if _, err := Weir(t.Context(), fake, "n", "2"); err == nil {
		t.Error("exit code 2 is no error")
	}
	if _, err := Weir(t.Context(), "/bin/false", "n"); err == nil {
		t.Error("no output is no error")
	}
	both := Results{"n": {"a": {3}}}
	both.Merge(want)
	if !reflect.DeepEqual(both["n"]["a"], []float64{3, 1.5}) {
		t.Errorf("merged: %v", both)
	}
}
