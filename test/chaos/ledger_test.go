package chaos

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// account is what callers know of one key: its limit holds for longer than any test.
type account struct {
	limit   int
	granted []time.Time // when the answer came, one per token
	apart   int         // of those, by standbys from their copies
	asked   int
	unknown int // sent without an answer, or allowed undecided
	delayed int // in progress for so long that another node may have been asked as well
}

// over returns by how much more was granted than the limit.
func (a *account) over() int { return max(0, len(a.granted)-a.limit) }

// grantedWithin returns how many tokens were granted in the time before an instant.
func (a *account) grantedWithin(d time.Duration, before time.Time) (n int) {
	for _, at := range a.granted {
		if at.Before(before) && before.Sub(at) <= d {
			n++
		}
	}
	return n
}

// ledger keeps the accounts of all keys.
type ledger struct {
	mu   sync.Mutex
	keys map[string]*account
}

func newLedger() *ledger { return &ledger{keys: make(map[string]*account)} }

// ask records a check that is about to be sent.
func (l *ledger) ask(key string, limit int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.keys[key]
	if a == nil {
		a = &account{limit: limit}
		l.keys[key] = a
	}
	a.asked++
}

// grant records tokens that were granted.
func (l *ledger) grant(key string, tokens int, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range tokens {
		l.keys[key].granted = append(l.keys[key].granted, at)
	}
}

// grantBy records tokens that were granted by a source.
func (l *ledger) grantBy(source weirv1.Source, key string, tokens int, at time.Time) {
	l.grant(key, tokens, at)
	if source != weirv1.Source_SOURCE_PROVISIONAL {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys[key].apart += tokens
}

// lose records a check that may have been counted or not.
func (l *ledger) lose(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys[key].unknown++
}

// delay records checks that were answered so late that another node may have been asked as well.
func (l *ledger) delay(keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		l.keys[key].delayed++
	}
}

// noneOver fails the test if more was granted of a key than its limit and allowance, and tells
// the sum of what was.
func (l *ledger) noneOver(t *testing.T, allowance func(*account) int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	over, keys, worst := 0, 0, 0
	for key, a := range l.keys {
		if n := a.over(); n > 0 {
			over, keys, worst = over+n, keys+1, max(worst, n)
			if most := allowance(a); n > most {
				t.Errorf("%s: %d tokens granted of %d, %d over; %d are allowed\n%s", key, len(a.granted), a.limit, n, most, a.when())
			}
		}
	}
	t.Logf("over the limit: %d tokens of %d of %d keys, at most %d of one", over, keys, len(l.keys), worst)
}

// when says when tokens were granted, for short lists.
func (a *account) when() string {
	const most = 60
	if len(a.granted) > most {
		return ""
	}
	text := fmt.Sprintf("asked %d, unknown %d, granted at", a.asked, a.unknown)
	for _, at := range a.granted {
		text += at.Format(" 05.000")
	}
	return text
}

// nothing is the allowance of keys whose limits hold.
func nothing(*account) int { return 0 }

// replicated is how old a replica may be.
const replicated = 100 * time.Millisecond

// afterDeath is the allowance of keys one of whose owners was killed at those instants: a tenth
// of the limit, or what was granted since the last replica if that is more. On a machine that is so
// busy that answers come late, replicas do as well. On one that is so busy that this process could not ask in time, standbys
// decide apart although their owners live, too.
func (f *traffic) afterDeath(instants ...time.Time) func(*account) int {
	intervals := make([]time.Duration, len(instants))
	for i, at := range instants {
		intervals[i] = replicated + f.seen(at.Add(-time.Second), at).most
	}
	pace := f.paceOf(slices.MinFunc(instants, time.Time.Compare).Add(-nearby), time.Now())
	return func(a *account) int {
		sum := 0
		if pace < enoughPace {
			sum = a.apart
		}
		for i, at := range instants {
			sum += max(a.limit/10, a.grantedWithin(intervals[i], at))
		}
		return sum
	}
}
