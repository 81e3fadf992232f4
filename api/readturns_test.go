package api

import "testing"

// A connection is read in larger and larger pieces, and in small ones at first, while it is late, and after many calls were in one piece.
func TestConnectionsAreReadInTurns(t *testing.T) {
	var r readTurns
	b := make([]byte, 4*mostRead)
	for i, step := range []struct {
		calls int
		late  bool
		want  int
	}{
		{0, false, littleRead},
		{manyCalls, false, 2 * littleRead},
		{0, false, 4 * littleRead},
		{manyCalls + 1, false, littleRead},
		{manyCalls, false, 2 * littleRead},
		{1, true, littleRead},
		{1, true, littleRead},
		{0, false, 2 * littleRead},
	} {
		if got := len(r.next(b, step.calls, step.late)); got != step.want {
			t.Errorf("step %d: %d bytes, want %d", i, got, step.want)
		}
	}
	for range 100 {
		r.next(b, 0, false)
	}
	if got := len(r.next(b, 0, false)); got != mostRead {
		t.Errorf("%d bytes in the end, want %d", got, mostRead)
	}
	if got := len(r.next(b[:10], 0, false)); got != 10 {
		t.Errorf("%d bytes into a buffer of 10", got)
	}
}
