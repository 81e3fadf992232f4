package cluster

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/cluster/peerv1"
)

// A member's load is what it reports, and what it reports above the bounds is left out.
func TestLoadOnTheWire(t *testing.T) {
	at := time.Unix(1, 0)
	l := Load{
		Allowed: 1, Denied: 2, Undecided: 3, Bounds: []time.Duration{time.Millisecond, time.Second}, Calls: []uint64{4, 5, 6},
		Counters: 7, CounterBytes: 8, CounterLimit: 9, Memory: 10, Problems: []string{"etcd does not answer"},
	}
	l.At = at.Add(-time.Second)
	want := l
	if got := loadOf(l.wire(at), at); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if (Load{}).wire(at) != nil || !loadOf(nil, at).At.IsZero() {
		t.Error("a load of an older version is not none")
	}
	long := strings.Repeat("ä", maxLoadProblemBytes)
	hostile := loadOf(&peerv1.Load{
		Bounds: make([]uint64, maxLoadBounds+1), Calls: make([]uint64, maxLoadBounds+2), Problems: []string{long, "2", "3", "4", "5", "6", "7", "8", "9"},
	}, at)
	if hostile.Calls != nil || hostile.Bounds != nil || len(hostile.Problems) != maxLoadProblems || len(hostile.Problems[0]) > maxLoadProblemBytes || !strings.HasSuffix(hostile.Problems[0], "...") {
		t.Errorf("%+v", hostile)
	}
	if old := loadOf(&peerv1.Load{Age: 1 << 63}, at); at.Sub(old.At) != maxLoadAge {
		t.Errorf("it is %v old", at.Sub(old.At))
	}
	if short := loadOf(&peerv1.Load{Bounds: []uint64{1}, Calls: []uint64{1}}, at); short.Calls != nil {
		t.Errorf("calls that are not by the bounds: %+v", short)
	}
}
