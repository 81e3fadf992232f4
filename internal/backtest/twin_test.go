package backtest

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
)

// twin replays in the plainest way: expressions and encoding/json read lines, counters have their texts for keys and
// are kept for good, and Explain says which limits apply.
type twin struct {
	set    *rules.Set
	states map[string]algorithms.State
	longs  map[string]*algorithms.Long
	latest int64
}

var twinLine = regexp.MustCompile(`^(\S+) \S+ (\S+) \[([^]]+)\] "(\S+) (\S+) \S+" \d+ \d+ "[^"]*" "[^"]*"$`)

// read returns the instant and the attributes of a line, false if it is not of the format.
func (tw *twin) read(format, line string) (int64, map[string]string, bool) {
	if format == JSON {
		var v struct{ Time, IP, User, Method, Endpoint string }
		if json.Unmarshal([]byte(line), &v) != nil {
			return 0, nil, false
		}
		at, err := time.Parse(time.RFC3339Nano, v.Time)
		return at.UnixNano(), map[string]string{"ip": v.IP, "user": v.User, "method": v.Method, "endpoint": v.Endpoint}, err == nil
	}
	m := twinLine.FindStringSubmatch(line)
	if m == nil {
		return 0, nil, false
	}
	at, err := time.Parse("02/Jan/2006:15:04:05 -0700", m[3])
	path, _, _ := strings.Cut(m[5], "?")
	return at.UnixNano(), map[string]string{"ip": m[1], "user": m[2], "method": m[4], "endpoint": path}, err == nil
}

// decide returns allowed or denied.
func (tw *twin) decide(at int64, attributes map[string]string) verdict {
	tw.latest = max(tw.latest, at)
	req := &rules.Request{Domain: "default"}
	for _, name := range []string{"ip", "user", "method", "endpoint"} {
		if v := attributes[name]; v != "" && v != "-" {
			req.Attributes = append(req.Attributes, rules.Attribute{Key: name, Value: v})
		}
	}
	type held struct {
		key   string
		limit algorithms.Limit
	}
	var all []held
	v := allowed
	for _, e := range tw.set.Explain(ring.NewHasher([ring.SecretSize]byte{}), req) {
		for _, m := range e.Matches {
			if m.Limit < 0 {
				return allowed
			}
			h := held{fmt.Sprintf("%s %d %d", e.Rule.ID, m.Per, m.Limit), m.Held()}
			if len(e.Rule.Per) > 0 {
				for _, name := range e.Rule.Per[m.Per] {
					h.key += fmt.Sprintf(" %s=%q", name, attributes[name])
				}
			}
			if d := tw.step(h.key, h.limit, false); !d.Allowed && m.Shadow {
				continue
			} else if !d.Allowed {
				v = denied
			}
			all = append(all, h)
		}
	}
	for _, h := range all {
		if v == allowed {
			tw.step(h.key, h.limit, true)
		}
	}
	return v
}

func (tw *twin) step(key string, l algorithms.Limit, commit bool) algorithms.Decision {
	if l.Algorithm.Long() {
		if tw.longs[key] == nil {
			tw.longs[key] = new(algorithms.Long)
		}
		return tw.longs[key].Step(&l, tw.latest, 1, commit)
	}
	next, d := algorithms.Step(&l, tw.states[key], tw.latest, 1)
	if commit {
		tw.states[key] = next
	}
	return d
}

const twinRules = `
domain: default
rules:
  - {id: user, per: [user], limits: [{limit: 25, window: 1m}, {limit: 200, window: 1h, algorithm: fixed_window}]}
  - {id: address, per: [ip], limits: [{limit: 20, window: 1m, burst: 15, algorithm: token_bucket}]}
  - {id: slow, per: [user], limits: [{limit: 14, window: 15m}]}
  - {id: posts, when: {method: POST}, per: [user, ip], limits: [{limit: 30, window: 1m, algorithm: sliding_window_log}]}
  - {id: search, when: {endpoint: /api/v1/search}, per: [ip], limits: [{limit: 2, window: 10s, algorithm: gcra}]}
  - {id: watched, when: {method: GET}, per: [ip], enforce: 40, limits: [{limit: 9, window: 30s, algorithm: sliding_window_buckets}]}
  - {id: logins, when: {endpoint: /login}, per: [[user], [ip]], limits: [{limit: 6, window: 10m, algorithm: fixed_window}]}
  - {id: free, when: {user: user07}, unlimited: true}
`

// noisy is a log with broken lines, blank ones, and lines that come late.
func noisy(log []byte, r *rand.Rand) []byte {
	lines := bytes.SplitAfter(log, []byte("\n"))
	for i := range lines {
		switch r.IntN(40) {
		case 0:
			lines[i] = []byte("what is this \"\n")
		case 1:
			lines[i] = []byte("\n")
		case 2:
			if j := i + r.IntN(20); j < len(lines) {
				lines[i], lines[j] = lines[j], lines[i]
			}
		}
	}
	return bytes.Join(lines, nil)
}

// The replay decides every line as the plain one does, however the log is cut into files, and although counters are dropped.
func TestReplayIsThatOfItsTwin(t *testing.T) {
	set, err := rules.Parse("twin.yaml", []byte(twinRules))
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{Combined, JSON} {
		log := apiLog()
		if format == JSON {
			log = loginLog()
		}
		log = noisy(log, rand.New(rand.NewPCG(1, 1)))
		run, err := New(Config{Rules: set, Format: format})
		if err != nil {
			t.Fatal(err)
		}
		run.one.counters.sweepAt = 8
		tw := &twin{set: set, states: make(map[string]algorithms.State), longs: make(map[string]*algorithms.Long)}
		var want [2]int64
		broken := int64(0)
		for i, line := range bytes.SplitAfter(log, []byte("\n")) {
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			at, attributes, ok := tw.read(format, strings.TrimSuffix(string(line), "\n"))
			if ok && run.first == 0 { // else the first lines are held
				run.first, run.latest = at, at
			}
			before := run.both
			f := run.line(line)
			if !ok {
				if broken++; f == fine {
					t.Errorf("line %d is fine: %s", i, line)
				}
				continue
			}
			v := tw.decide(at, attributes)
			want[v]++
			if f != fine || run.both[v][v] != before[v][v]+1 {
				t.Fatalf("line %d: fault %d, %v after %v, want verdict %d: %s", i, f, run.both, before, v, line)
			}
			run.one.counters.sweepAt = min(run.one.counters.sweepAt, 8+len(run.one.counters.index)) // sweep often
		}
		// The whole log at once, as two compressed files, comes to the same.
		whole, err := New(Config{Rules: set, Format: format})
		if err != nil {
			t.Fatal(err)
		}
		half := bytes.IndexByte(log[len(log)/2:], '\n') + len(log)/2 + 1
		for _, text := range [][]byte{log[:half], log[half:]} {
			if err := whole.Read("log", bytes.NewReader(zipped(t, text))); err != nil {
				t.Fatal(err)
			}
		}
		res := whole.Result()
		if res.Allowed != want[allowed] || res.Denied != want[denied] || res.Skipped["broken"] != broken || res.Lines != res.Allowed+res.Denied+broken {
			t.Errorf("%s: %d lines, %d allowed, %d denied, skipped %v, want %v and %d broken", format, res.Lines, res.Allowed, res.Denied, res.Skipped, want, broken)
		}
		if want[denied] < 100 || want[allowed] < 100 || broken < 10 || res.Backward < 10 {
			t.Errorf("%s tries too little: %v, %d broken, %d backward", format, want, broken, res.Backward)
		}
		if run.one.counters.made == int64(len(run.one.counters.index)) {
			t.Errorf("%s: no counter was dropped", format)
		}
	}
}

// A check that a rule denies by one set of attributes counts as denied, also if another set would not be enforced.
func TestDenialsOfSeveralSets(t *testing.T) {
	set, err := rules.Parse("sets.yaml", []byte("domain: default\nrules: [{id: sets, per: [[user], [ip]], enforce: 50, limits: [{limit: 1, window: 1h}]}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	run, err := New(Config{Rules: set, Format: JSON, Map: []Mapping{{Attribute: "user", Field: "user"}, {Attribute: "ip", Field: "ip"}}})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&log, `{"ts":%d,"user":"u%d","ip":"192.0.2.%d"}`+"\n", 1_700_000_000+i/100, i%20, i%17)
	}
	if err := run.Read("log", strings.NewReader(log.String())); err != nil {
		t.Fatal(err)
	}
	if res := run.Result(); len(res.Rules) != 1 || res.Rules[0].Denied != res.Denied || res.Denied < 100 || res.Allowed < 100 {
		t.Errorf("%d denied, %d allowed, and by rule %+v", res.Denied, res.Allowed, res.Rules)
	}
}

// The parts of time are as long as the instants of a log need, however far they are apart.
func TestSeriesOfFarInstants(t *testing.T) {
	var s series
	s.add(0, allowed, allowed)
	s.add(math.MaxInt64, denied, allowed)
	if all := s.list(); len(all) > seriesParts || all[0].Checks != 1 || all[len(all)-1].Denied != 1 {
		t.Errorf("%d parts: %v", len(all), all)
	}
}

func zipped(t *testing.T, text []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(text); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
