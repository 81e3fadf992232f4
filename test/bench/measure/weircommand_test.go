package measure

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

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
