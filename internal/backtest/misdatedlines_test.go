package backtest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/rules"
)

// secondsLog has a line of JSON for each instant, in Unix seconds.
func secondsLog(seconds ...int64) string {
	var log strings.Builder
	for _, s := range seconds {
		fmt.Fprintf(&log, `{"ts":%d,"user":"a"}`+"\n", s)
	}
	return log.String()
}

func replayed(t *testing.T, c Config, logs ...string) *Result {
	t.Helper()
	set, err := rules.Parse("rules.yaml", []byte("domain: default\nrules: [{id: a, per: [user], limits: [{limit: 5, window: 10s}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	c.Rules = set
	run, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	for i, log := range logs {
		if err := run.Read(fmt.Sprintf("log%d", i+1), strings.NewReader(log)); err != nil {
			t.Fatal(err)
		}
	}
	return run.Result()
}

// Lines whose clock is far ahead of those after them are counted and named, and the others are decided as without them.
func TestLinesFarAhead(t *testing.T) {
	const begin, far = 1_770_000_000, 7_000_000_000
	r := rand.New(rand.NewPCG(11, 1))
	var calm, wild []int64
	first := 0
	for i := range int64(2000) {
		if i%9 == 0 && r.IntN(3) == 0 || i == 700 {
			if wild = append(wild, far+int64(r.IntN(1e9))); first == 0 {
				first = len(wild)
			}
		}
		calm, wild = append(calm, begin+i), append(wild, begin+i)
	}
	want := replayed(t, Config{Format: JSON}, secondsLog(calm...))
	got := replayed(t, Config{Format: JSON}, secondsLog(wild...))
	if n := int64(len(wild) - len(calm)); got.Skipped["ahead"] != n || got.Lines != want.Lines+n || n < 50 {
		t.Errorf("%d lines, skipped %v, %d are ahead", got.Lines, got.Skipped, n)
	}
	if got.FirstSkipped["ahead"] != fmt.Sprintf("log1:%d", first) {
		t.Errorf("the first one at %s, want line %d", got.FirstSkipped["ahead"], first)
	}
	if got.Allowed != want.Allowed || got.Denied != want.Denied || got.Last != want.Last || got.First != want.First || got.Backward != 0 {
		t.Errorf("%d allowed, %d denied, %d to %d, %d backward; without them %d, %d", got.Allowed, got.Denied, got.First, got.Last, got.Backward, want.Allowed, want.Denied)
	}
	if want.Denied < 500 {
		t.Errorf("it tries too little: %d denied", want.Denied)
	}
	// The first line of a log, and one before the next log.
	got = replayed(t, Config{Format: JSON}, secondsLog(append([]int64{far}, calm[:1000]...)...)+secondsLog(far), secondsLog(calm[1000:]...))
	if got.Skipped["ahead"] != 2 || got.Denied != want.Denied {
		t.Errorf("skipped %v, %d denied, want %d", got.Skipped, got.Denied, want.Denied)
	}
	// Columns of CSV may stand elsewhere in the next log.
	rows := fmt.Sprintf("ts,user\n%d,a\n%d,a\n", begin, far)
	next := "user,ts\n"
	for _, s := range calm[1:] {
		next += fmt.Sprintf("a,%d\n", s)
	}
	if got := replayed(t, Config{Format: CSV}, rows, next); got.Skipped["ahead"] != 1 || len(got.Skipped) != 1 || got.Denied != want.Denied || got.Allowed != want.Allowed {
		t.Errorf("CSV: skipped %v, %d denied, want %d, %d allowed, want %d", got.Skipped, got.Denied, want.Denied, got.Allowed, want.Allowed)
	}
}

// Gaps of a log are no lines ahead: what comes after them is decided in its time.
func TestGapsOfALog(t *testing.T) {
	const begin, week = 1_770_000_000, 7 * 86400
	var all []int64
	for part := range int64(4) {
		for i := range 3 + 20*part {
			all = append(all, begin+part*week+i)
		}
	}
	all = append(all, begin+5*week, begin+6*week, begin+6*week+1)
	res := replayed(t, Config{Format: JSON}, secondsLog(all...))
	if len(res.Skipped) > 0 || res.Backward > 0 || res.Lines != int64(len(all)) || res.Last != begin+6*week+1 || res.Allowed+res.Denied != res.Lines || res.Denied == 0 {
		t.Errorf("%d of %d lines, skipped %v, %d backward, last %d", res.Lines, len(all), res.Skipped, res.Backward, res.Last)
	}
	// A log that goes back for good is not one of lines ahead, except for those at the seam.
	res = replayed(t, Config{Format: JSON}, secondsLog(all...), secondsLog(all[:50]...))
	if res.Skipped["ahead"] > lookahead || res.Lines != int64(len(all)+50) || res.Backward < 40 {
		t.Errorf("%d lines, skipped %v, %d backward", res.Lines, res.Skipped, res.Backward)
	}
	if res := replayed(t, Config{Format: JSON}, secondsLog(begin+week)); res.Allowed != 1 || res.First != begin+week || res.Last != res.First {
		t.Errorf("one line: %+v", res.LogFacts)
	}
	if res := replayed(t, Config{Format: JSON}, ""); res.Lines != 0 {
		t.Errorf("%d lines of none", res.Lines)
	}
}

// Lines that are held are bounded in number, also if each is far ahead of the one before.
func TestHeldLinesAreBounded(t *testing.T) {
	set := new(rules.Set)
	run, err := New(Config{Rules: set, Format: JSON})
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	run.observers = append(run.observers, func(*record, *check) { most = max(most, len(run.held)) })
	var all []int64
	for i := range int64(500) {
		all = append(all, 1_770_000_000+i*int64(3*24*time.Hour/time.Second))
	}
	if err := run.Read("log", strings.NewReader(secondsLog(all...))); err != nil {
		t.Fatal(err)
	}
	if most > lookahead+1 || most == 0 || len(run.held) > lookahead+1 {
		t.Errorf("%d held at most, %d at the end", most, len(run.held))
	}
	line := []byte(secondsLog(1_770_000_000 + 1e9)) // its bytes are used again by the reader
	if f := run.line(line); f != fine {
		t.Fatal(f)
	}
	clear(line)
	if res := run.Result(); res.Lines != 501 || res.Allowed != 501 || res.Backward != 0 {
		t.Errorf("%+v", res.LogFacts)
	}
}
