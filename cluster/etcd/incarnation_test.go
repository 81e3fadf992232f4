package etcd

import (
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestIncarnations(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	const nodes, each = 4, 10
	var wait sync.WaitGroup
	var mu sync.Mutex
	var got []uint64
	for range nodes {
		r := open(t, 0, s.Endpoint())
		wait.Go(func() {
			last := uint64(0)
			for range each {
				n, err := r.NextIncarnation(t.Context(), "a")
				if err != nil || n <= last {
					t.Errorf("%d after %d, %v", n, last, err)
				}
				last = n
				mu.Lock()
				got = append(got, n)
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	slices.Sort(got)
	for i, n := range got {
		if n != uint64(i+1) {
			t.Fatalf("not 1 to %d: %d", nodes*each, got)
		}
	}
	r := open(t, 0, s.Endpoint())
	if n, err := r.NextIncarnation(t.Context(), "b"); n != 1 || err != nil {
		t.Errorf("another node: %d, %v", n, err)
	}
	put(t, rawClient(t, s.Endpoint()), r.keys.incarnations+"c", "many")
	_, err := r.NextIncarnation(t.Context(), "c")
	if want := `counting starts of node "c": /weir/test/incarnations/c: strconv.ParseUint: parsing "many": invalid syntax`; err == nil || err.Error() != want {
		t.Errorf("error %q, not %q", err, want)
	}
	for _, id := range []string{"", "a/b", strings.Repeat("x", 129)} {
		if _, err := r.NextIncarnation(t.Context(), id); err == nil {
			t.Errorf("id %q is taken", id)
		}
	}
}
