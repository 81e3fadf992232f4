package backtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
)

// suggestionOf reads a log.
func suggestionOf(t *testing.T, c SuggestConfig, log []byte) (*Suggester, *Suggestion) {
	t.Helper()
	s, err := NewSuggester(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Read("log", bytes.NewReader(log)); err != nil {
		t.Fatal(err)
	}
	return s, s.Result()
}

// readBack reads the file that a suggestion is written as.
func readBack(t *testing.T, found *Suggestion) (set *rules.Set, text []byte) {
	t.Helper()
	text, err := found.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if set, err = rules.Parse("suggested.yaml", text); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return set, text
}

// replayOf replays a log through rules.
func replayOf(t *testing.T, c Config, log []byte, docs []rules.Document) *Run {
	t.Helper()
	var err error
	if c.Rules, err = rules.Compile("suggested", docs); err != nil {
		t.Fatal(err)
	}
	run, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Read("log", bytes.NewReader(log)); err != nil {
		t.Fatal(err)
	}
	return run
}

// deniedBy replays a log, and returns the keys that each rule denies.
func deniedBy(t *testing.T, c Config, log []byte, docs []rules.Document) map[string]map[string]bool {
	t.Helper()
	run := replayOf(t, c, log, docs)
	denied := make(map[string]map[string]bool)
	for _, s := range run.one.rules {
		if s == nil {
			continue
		}
		denied[s.rule.ID] = make(map[string]bool)
		for _, k := range s.top.counts {
			denied[s.rule.ID][k.text] = true
		}
		if s.top.missed > 0 {
			t.Fatal("there are too many keys to name all that are denied")
		}
	}
	return denied
}

// wellBehaved returns those keys of a rule that no sign takes for a machine.
func (s *Suggester) wellBehaved(rule string) map[string]bool {
	well := make(map[string]bool)
	for _, p := range s.rules {
		if p == nil || p.rule.ID != rule {
			continue
		}
		for _, k := range p.keys {
			if len(k.signs) == 0 {
				well[k.text] = true
			}
		}
	}
	return well
}

func common(a, b map[string]bool) (n int) {
	for k := range a {
		if b[k] {
			n++
		}
	}
	return n
}

var sampleFormats = map[string]func() []byte{Combined: apiLog, JSON: loginLog}

// The promise: replayed by the simulator, suggested limits touch no more well-behaved keys than they may. Without
// headroom a limit that is lower by one touches more.
func TestSuggestedLimitsTouchFewKeys(t *testing.T) {
	touches, tight := 0, 0
	for format, generate := range sampleFormats {
		log := noisy(generate(), rand.New(rand.NewPCG(4, 4)))
		for _, touch := range []float64{0, 5, 20} {
			for _, algorithm := range []algorithms.Algorithm{0, algorithms.SlidingWindow, algorithms.TokenBucket} {
				for _, windows := range [][]time.Duration{nil, {10 * time.Second, 5 * time.Minute}} {
					name := fmt.Sprintf("%s %v%% %v %v", format, touch, algorithm, windows)
					c := SuggestConfig{Config: Config{Format: format}, Touch: touch, Algorithm: algorithm, Windows: windows}
					s, found := suggestionOf(t, c, log)
					if len(found.Rules) != 2 {
						t.Fatalf("%s: %d rules", name, len(found.Rules))
					}
					for i, r := range found.Rules {
						if len(r.Limits) != len(s.config.Windows) {
							t.Fatalf("%s: %s has %d limits: %q", name, r.Rule, len(r.Limits), r.Notes)
						}
						well := s.wellBehaved(r.Rule)
						docs := found.Documents(100)
						docs[0].Rules = docs[0].Rules[i : i+1] // alone: denials by another rule would spare it some
						touched := common(deniedBy(t, c.Config, log, docs)[r.Rule], well)
						touches += touched
						claimed := 0
						for _, l := range r.Limits {
							claimed += l.Touched
						}
						if claimed < touched || claimed > r.MayTouch {
							t.Errorf("%s: %s says that it touches %d keys of %d that it may, and touches %d", name, r.Rule, claimed, r.MayTouch, touched)
						}
						if most := int(math.Floor(touch / 100 * float64(len(well)))); touched > most || len(well) != r.WellBehaved {
							t.Errorf("%s: %s touches %d of %d keys, %d well-behaved by the answer", name, r.Rule, touched, len(well), r.WellBehaved)
						}
						if len(r.Limits) > 1 {
							continue
						}
						l := &docs[0].Rules[0].Limits[0]
						if l.Burst == 1 {
							continue // 0 is not less
						}
						if l.Burst > 0 {
							l.Burst--
						} else {
							l.Limit--
						}
						tight++
						if touched := common(deniedBy(t, c.Config, log, docs)[r.Rule], well); touched <= r.MayTouch {
							t.Errorf("%s: %s: %+v touches %d keys of %d that it may", name, r.Rule, *l, touched, r.MayTouch)
						}
					}
				}
			}
		}
	}
	if touches < 20 || tight < 30 {
		t.Errorf("tries too little: %d touches, %d limits that are lower by one", touches, tight)
	}
}

// Both rules together, with headroom as by default, do not touch more.
func TestSuggestedRulesTogether(t *testing.T) {
	for format, generate := range sampleFormats {
		c := SuggestConfig{Config: Config{Format: format}, Touch: 5, Headroom: 20}
		s, found := suggestionOf(t, c, generate())
		denied := deniedBy(t, c.Config, generate(), found.Documents(100))
		for _, r := range found.Rules {
			well := s.wellBehaved(r.Rule)
			if touched := common(denied[r.Rule], well); 100*touched > 5*len(well) {
				t.Errorf("%s: %s touches %d of %d keys", format, r.Rule, touched, len(well))
			}
		}
	}
}

// The machines of the samples are found, by what makes them machines, and no person is.
func TestMachinesOfSamples(t *testing.T) {
	_, found := suggestionOf(t, SuggestConfig{Touch: 1, Headroom: 20}, apiLog())
	got := ""
	for _, r := range found.Rules {
		for _, m := range r.Machines {
			got += fmt.Sprintf("%s %s %s\n", r.Rule, m.Key, m.Signs)
		}
		if r.WellBehaved != 60 {
			t.Errorf("%s: %d well-behaved keys", r.Rule, r.WellBehaved)
		}
		for _, l := range r.Limits {
			if l.MachinesTouched != r.MachineKeys {
				t.Errorf("%s: %+v", r.Rule, l)
			}
		}
	}
	want := "per-user user=partner [rate]\nper-ip ip=203.0.113.77 [agent regular]\nper-ip ip=192.0.2.10 [rate]\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	s, found := suggestionOf(t, SuggestConfig{Config: Config{Format: JSON}, Touch: 1}, loginLog())
	for _, k := range s.rules[1].keys {
		if attack := strings.HasPrefix(k.text, "ip=203.0.113."); attack != slices.Contains(k.signs, ByAgent) || !attack && len(k.signs) > 0 {
			t.Errorf("%s: %s", k.text, k.signs)
		}
	}
	if r := found.Rules[1]; r.MachineKeys != 200 || len(r.Machines) != machinesShown || !slices.ContainsFunc(r.Machines, func(m Machine) bool { return slices.Contains(m.Signs, ByErrors) }) {
		t.Errorf("%d machines: %v", r.MachineKeys, r.Machines)
	}
}

// What is suggested are rules that are not enforced yet, and else those of the file.
func TestSuggestForRules(t *testing.T) {
	set, err := rules.Parse("rules.yaml", []byte(`
domain: default
rules:
  - {id: free, when: {user: user07}, unlimited: true}
  - {id: posts, when: {method: POST}, per: [[user], [ip]], limits: [{limit: 1, window: 1s}, {limit: 9, window: 1h, algorithm: fixed_window}], mode: {soft: {over: 10%}}, on_failure: local}
  - {id: nothing, when: {method: PATCH}, per: [user], limits: [{limit: 7, window: 1s}], enforce: 30}
  - {id: block, when: {endpoint: /admin}, limits: [{limit: 0, window: 1s}]}
  - {id: everything, limits: [{limit: 5, window: 1s}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	_, found := suggestionOf(t, SuggestConfig{Config: Config{Rules: set}, Touch: 1, Headroom: 20, Algorithm: algorithms.SlidingWindow}, apiLog())
	got, _ := readBack(t, found)
	for _, id := range []string{"free", "nothing", "block"} {
		if a, b := written(t, got.Rule("default", id)), written(t, set.Rule("default", id)); a != b {
			t.Errorf("%s is %s, and was %s", id, a, b)
		}
	}
	posts, everything := got.Rule("default", "posts-suggested"), got.Rule("default", "everything-suggested")
	if len(posts.Limits) != 1 || posts.Limits[0].Window != int64(time.Minute) || posts.Enforce != 0 || posts.Mode.Kind != rules.Hard || len(posts.Per) != 2 || len(posts.When) != 1 {
		t.Errorf("%+v", posts.Spec())
	}
	if r := found.Rules[2]; r.Rule != "everything" || r.Keys != 1 || r.MachineKeys != 0 || everything.Limits[0].Limit < r.Limits[0].Needed {
		t.Errorf("%+v: %+v", r, everything.Spec())
	}
	if lines := found.Rules[2].Lines; lines >= found.Lines { // those of user07 are exempt
		t.Errorf("%d of %d lines", lines, found.Lines)
	}
	want := int64(0)
	for line := range strings.Lines(string(apiLog())) {
		if strings.Contains(line, `"POST `) && !strings.Contains(line, " user07 ") {
			want += 2 // a key of each set
		}
	}
	if lines := found.Rules[0].Lines; lines != want {
		t.Errorf("%d lines of posts, want %d", lines, want)
	}
}

// Applied, what is suggested for rules in force denies all that they deny, until it is enforced itself.
func TestSuggestForRulesInForce(t *testing.T) {
	set, err := rules.Parse("rules.yaml", []byte(`
domain: default
rules:
  - {id: all, per: [user], limits: [{limit: 5, window: 1m}, {limit: 40, window: 1h, algorithm: fixed_window}], mode: {soft: {over: 10%}}}
  - {id: posts, when: {method: POST}, per: [ip], replaces: [all], limits: [{limit: 2, window: 1m}], enforce: 50}
  - {id: shadow, per: [endpoint], limits: [{limit: 2, window: 1m}], enforce: 0}
  - {id: `+strings.Repeat("l", 127)+`1, per: [ip], limits: [{limit: 1000, window: 1m}]}
  - {id: `+strings.Repeat("l", 127)+`2, per: [ip], limits: [{limit: 1000, window: 1m}]}
  - {id: off, per: [endpoint, ip], limits: [{limit: 2, window: 1m}], enabled: false}
`))
	if err != nil {
		t.Fatal(err)
	}
	c := SuggestConfig{Config: Config{Rules: set}, Touch: 1, Headroom: 20}
	_, found := suggestionOf(t, c, apiLog())
	got, text := readBack(t, found)
	before, after := replayOf(t, Config{}, apiLog(), set.Documents()).Result(), replayOf(t, Config{}, apiLog(), got.Documents()).Result()
	if before.Denied == 0 || after.Denied != before.Denied {
		t.Errorf("%d lines were denied, and %d are after it with\n%s", before.Denied, after.Denied, text)
	}
	for id, same := range map[string]bool{"all": true, "posts": false, "shadow": false, "off": true} { // posts also replaces all-suggested
		if now, was := written(t, got.Rule("default", id)), written(t, set.Rule("default", id)); (now == was) != same {
			t.Errorf("%s is %s, and was %s", id, now, was)
		}
	}
	if r := got.Rule("default", "posts"); r.Enforce != 50 || r.Limits[0].Limit != 2 {
		t.Errorf("%+v", r.Spec())
	}
	if r := got.Rule("default", "posts-suggested"); !slices.Equal(r.Replaces, []string{"all", "all-suggested"}) || r.Enforce != 0 || r.Limits[0].Algorithm != algorithms.TokenBucket {
		t.Errorf("%+v", r.Spec())
	}
	if r := got.Rule("default", "all-suggested"); r == nil || r.Enforce != 0 || r.Mode.Kind != rules.Hard || len(r.Limits) != 1 || got.Len() != 9 {
		t.Errorf("%d rules in\n%s", got.Len(), text)
	}
	// Each rule that is added sees the lines that the limits were found in.
	lines := make(map[string]int64)
	for _, r := range replayOf(t, Config{}, apiLog(), got.Documents()).Result().Rules {
		lines[r.Rule] = r.Lines
	}
	for _, r := range found.Rules {
		if n := lines[r.Rule+"-suggested"]; n > 0 && n != r.Lines || lines["all-suggested"] == 0 || lines["posts-suggested"] == 0 {
			t.Errorf("%d lines of %s, and of the rule added for it %d", r.Lines, r.Rule, n)
		}
	}
	c.Rules = got
	_, found = suggestionOf(t, c, apiLog())
	if again, text := readBack(t, found); again.Len() != got.Len() || !strings.Contains(string(text), "stays as it is: there is all-suggested already") {
		t.Errorf("of rules and what was suggested for them\n%s", text)
	}
}

// A token bucket is chosen if it allows at most three quarters of what the sliding window does, in ten windows.
func TestChoiceOfAlgorithm(t *testing.T) {
	const minute = int64(time.Minute)
	for _, c := range []struct {
		name                  string
		sliding, one, five    int64 // needs of the sliding window, and of bursts at rates of 1 and 5
		only, want            algorithms.Algorithm
		need, most, otherwise int64
	}{
		{"bucket at three quarters", 10, 1000, 25, 0, algorithms.TokenBucket, 25, 75, 100},
		{"bucket above it", 10, 1000, 26, 0, algorithms.SlidingWindow, 10, 100, 76},
		{"lower rate", 10, 10, 5, 0, algorithms.TokenBucket, 10, 20, 100},
		{"too slow to refill", 1000, 11, 51, 0, algorithms.SlidingWindow, 1000, 10_000, 0},
		{"only sliding", 10, 1, 1, algorithms.SlidingWindow, algorithms.SlidingWindow, 10, 100, 0},
		{"only bucket", 1, 10, 20, algorithms.TokenBucket, algorithms.TokenBucket, 10, 20, 0},
	} {
		limit := func(a algorithms.Algorithm) algorithms.Limit { return algorithms.Limit{Algorithm: a, Window: minute} }
		all := []measure{
			{limit: limit(algorithms.SlidingWindow), window: time.Minute},
			{limit: limit(algorithms.TokenBucket), window: time.Minute, rate: 1},
			{limit: limit(algorithms.TokenBucket), window: time.Minute, rate: 5},
		}
		key := &keyStats{measured: []usage{{need: c.sliding}, {need: c.one}, {need: c.five}}}
		chosen := chooser{measures: all, well: []*keyStats{key}, covered: enoughWindows * minute}
		is, other := chosen.choose(minute, 0, c.only)
		if got := all[is.measure].limit.Algorithm; !is.valid || got != c.want || is.need != c.need || is.most != c.most || other.most*int64(b2i(other.valid)) != c.otherwise {
			t.Errorf("%s: %v %+v, and not %+v", c.name, got, is, other)
		}
	}
}

// What a decision log has of checks that counted nothing is no traffic.
func TestSuggestOfDecisions(t *testing.T) {
	var log []byte
	for i := range 10 {
		for _, more := range []string{"", `"peek":true,`, `"returned":true,`} {
			log = fmt.Appendf(log, `{"time":"2026-03-02T09:00:%02dZ","domain":"default","keys":"clear","source":"owner","allowed":true,%s"descriptors":[{"tokens":3,"entries":[{"key":"user","value":"a"}]}]}`+"\n", i, more)
		}
	}
	_, found := suggestionOf(t, SuggestConfig{Config: Config{Format: Decisions}}, log)
	if r := found.Rules[0]; found.Lines != 30 || r.Lines != 10 || r.Keys != 1 || r.Needs[0].All != 6 {
		t.Errorf("%d lines, %+v", found.Lines, r)
	}
}

func written(t *testing.T, r *rules.Rule) string {
	t.Helper()
	text, err := rules.Format([]rules.Document{{Domain: r.Domain, Rules: []rules.Spec{r.Spec()}}})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// manyKeys is a log of keys that ask up to eight times at once.
func manyKeys(keys int) []byte {
	r := rand.New(rand.NewPCG(3, 9))
	var out bytes.Buffer
	for i := range keys {
		for range 1 + r.IntN(4) + r.IntN(5) {
			fmt.Fprintf(&out, "{\"ts\":1770000000,\"user\":\"u%d\"}\n", i)
		}
	}
	fmt.Fprintf(&out, "{\"ts\":1770000060,\"user\":\"u0\"}\n") // a log of one window
	return out.Bytes()
}

// Of too many keys a sample is measured. Its size has a bound, the number of all keys is estimated, and the limit keeps
// the promise for keys that were not measured, in any sample.
func TestSampleOfKeys(t *testing.T) {
	const keys, most, touch = 3000, 200, 10
	log := manyKeys(keys)
	all, _ := suggestionOf(t, SuggestConfig{Config: Config{Format: JSON}, Touch: touch}, log)
	broken := 0
	for seed := range byte(20) {
		s, err := NewSuggester(SuggestConfig{Config: Config{Format: JSON}, Touch: touch, Algorithm: algorithms.SlidingWindow, secret: &[ring.SecretSize]byte{seed}})
		if err != nil {
			t.Fatal(err)
		}
		s.config.MaxKeys = most
		largest := 0
		s.run.observers = append(s.run.observers, func(*record, *check) {
			largest = max(largest, len(s.rules[0].keys))
		})
		if err := s.Read("log", bytes.NewReader(log)); err != nil {
			t.Fatal(err)
		}
		r := s.Result().Rules[0]
		if largest > most || r.Keys != s.kept || r.Keys < most/4 || r.SampledOneIn < 8 || r.MachineKeys > 0 {
			t.Errorf("seed %d: %d keys at most, %d at the end, %d counted, one in %d", seed, largest, r.Keys, s.kept, r.SampledOneIn)
		}
		if about := int64(r.Keys) * r.SampledOneIn; about < keys/2 || about > keys*2 {
			t.Errorf("seed %d: about %d keys of %d", seed, about, keys)
		}
		above := 0
		for _, k := range all.rules[0].keys {
			if k.measured[all.slidingMeasure(time.Minute)].need > r.Limits[0].Limit {
				above++
			}
		}
		if 100*above > touch*keys {
			broken++
		}
	}
	if broken > 1 {
		t.Errorf("%d of 20 samples lead to limits that touch too many keys", broken)
	}
}

// The bound of samples is that of sums of binomial probabilities.
func TestSampledTouch(t *testing.T) {
	for _, c := range []struct {
		n           int
		touch, risk float64
	}{{1, 0.5, 0.6}, {10, 0.1, 0.01}, {100, 0.1, 0.01}, {458, 0.01, 0.01}, {459, 0.01, 0.01}, {2000, 0.05, 0.001}, {65536, 0.5, 0.01}} {
		k, sure := sampledTouch(c.n, c.touch, c.risk)
		atMost := func(k int) (p float64) {
			for i := 0; i <= k; i++ {
				a, _ := math.Lgamma(float64(c.n + 1))
				b, _ := math.Lgamma(float64(i + 1))
				d, _ := math.Lgamma(float64(c.n - i + 1))
				p += math.Exp(a - b - d + float64(i)*math.Log(c.touch) + float64(c.n-i)*math.Log(1-c.touch))
			}
			return p
		}
		if next := atMost(k + 1); sure && (atMost(k) > c.risk || next <= c.risk) || !sure && (k != 0 || atMost(0) <= c.risk) {
			t.Errorf("%+v: %d, %t: %v and %v", c, k, sure, atMost(k), next)
		}
	}
	if k, sure := sampledTouch(1000, 0, 0.01); k != 0 || sure {
		t.Errorf("%d, %t of a touch of 0", k, sure)
	}
}

// Logs that are made to do harm lead to rules that load, a page without a script, and numbers that can be.
func TestSuggestOfHostileLogs(t *testing.T) {
	var log bytes.Buffer
	for line := range strings.Lines(string(hostileLog(t))) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		v["user_agent"], v["status"] = fmt.Sprint(v["user"], "bot"), "4</td>"
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		log.Write(append(text, '\n'))
	}
	for i := range 50 { // costs that no counter holds, time that runs backward, agents and users without end
		fmt.Fprintf(&log, `{"ts":%d,"user":"greedy%d","kb":2147483648,"status":"-"}`+"\n", 1_770_000_000-i*1000, i%40)
		fmt.Fprintf(&log, `{"ts":1770000001,"user":"%s","kb":"x","status":404,"user_agent":"%s bot"}`+"\n", strings.Repeat("u", 5000+i), strings.Repeat("a", 5000+i))
		fmt.Fprintf(&log, `{"ts":1770000001,"user":"calm%d","kb":1,"status":"","user_agent":null}`+"\n", i%20)
	}
	log.WriteString("<script>broken\n{\"ts\":\"never\"}\n")
	set, err := rules.Parse("rules.yaml", []byte("domain: default\nrules: [{id: a, per: [user], cost: kb, limits: [{limit: 5, window: 1m}]}, {id: b, per: [user], limits: [{limit: 5, window: 1m}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Format: JSON, Rules: set, Map: []Mapping{{Attribute: "kb", Field: "kb"}}}
	s, found := suggestionOf(t, SuggestConfig{Config: c, Touch: 1, Headroom: 1000, Windows: []time.Duration{time.Second}}, log.Bytes())
	if len(found.Rules) != 2 || len(found.Rules[0].Limits) != 0 || len(found.Rules[1].Limits) != 1 || found.Rules[1].MachineKeys < 10 {
		t.Fatalf("%+v", found.Rules)
	}
	if !strings.Contains(strings.Join(found.Rules[0].Notes, " "), "No limit of 1s can be told") || found.Skipped["broken"] != 1 || found.Skipped["no_time"] != 1 || found.Backward == 0 {
		t.Errorf("%q, %v, %d backward", found.Rules[0].Notes, found.Skipped, found.Backward)
	}
	for _, p := range s.rules {
		for _, k := range p.keys {
			if len(k.text) > maxSubject || len(k.agent) > maxAgentBytes {
				t.Errorf("a key of %d bytes, an agent of %d", len(k.text), len(k.agent))
			}
		}
	}
	if _, text := readBack(t, found); bytes.Contains(text, []byte("script")) || bytes.Contains(text, []byte("user=")) {
		t.Errorf("a key is in\n%s", text)
	}
	run, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Read("log", bytes.NewReader(log.Bytes())); err != nil {
		t.Fatal(err)
	}
	result := run.Result()
	result.Suggestion = found
	var page bytes.Buffer
	if err := result.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	texts, policies, _, _ := looked(t, page.Bytes())
	if policies != 1 || !strings.Contains(texts, "Suggested limits") || !strings.Contains(texts, `agent "<script>alert(1)</script>bot"`) {
		t.Errorf("%d policies in\n%s", policies, texts)
	}
}

// A bin of gaps that is full keeps the shares of all.
func TestGapsAreBounded(t *testing.T) {
	var k keyStats
	for i := range 400_000 {
		k.gap(int64(2*time.Second) + int64(i%4/3)*int64(time.Minute))
	}
	if _, share, n := k.rhythm(); share < 0.74 || share > 0.76 || n > 2*math.MaxUint16 {
		t.Errorf("a share of %v of %d", share, n)
	}
}

func TestNewSuggesterRefuses(t *testing.T) {
	set, err := rules.Parse("rules.yaml", []byte("domain: default\nrules: [{id: a, limits: [{limit: 5, window: 1m}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	descriptors, err := rules.Parse("envoy.yaml", []byte("domain: e\ndescriptors:\n  - {key: user, rate_limit: {unit: second, requests_per_unit: 5}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	minutes := func(n ...time.Duration) (all []time.Duration) {
		for _, v := range n {
			all = append(all, v*time.Minute)
		}
		return all
	}
	for _, c := range []struct {
		config SuggestConfig
		want   string
	}{
		{SuggestConfig{Config: Config{Rules: set}, Per: [][]string{{"user"}}}, "per: rules say themselves"},
		{SuggestConfig{Config: Config{Rules: descriptors, Format: Decisions}}, `rules: domain "e" has descriptors of Envoy, and limits are suggested for rules only`},
		{SuggestConfig{Touch: -1}, "touch: -1 is not between 0 and 50 percent"},
		{SuggestConfig{Touch: math.NaN()}, "touch: NaN is not"},
		{SuggestConfig{Headroom: 1001}, "headroom: 1001 is not between 0 and 1000 percent"},
		{SuggestConfig{Algorithm: algorithms.LeakyBucket}, "algorithm: leaky_bucket is not one of sliding_window, token_bucket"},
		{SuggestConfig{MaxKeys: 999}, "keys: 999 is not between 1000 and 10000000"},
		{SuggestConfig{Windows: minutes(1, 2, 3, 4, 5)}, "windows: 5 are more than 4"},
		{SuggestConfig{Windows: minutes(1, 1)}, "window: 1m0s stands there twice"},
		{SuggestConfig{Windows: []time.Duration{time.Millisecond}}, "window: 1ms is not between 10ms"},
		{SuggestConfig{Per: [][]string{{"team"}}}, `per: there is no attribute "team"`},
		{SuggestConfig{Per: [][]string{{"user"}, {"user"}}}, "per: "},
		{SuggestConfig{Config: Config{Format: "xml"}}, `format "xml" is not one of`},
	} {
		if _, err := NewSuggester(c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// The one key of a rule that counts the traffic of all callers is no machine.
func TestAllTrafficIsNoMachine(t *testing.T) {
	set, err := rules.Parse("rules.yaml", []byte("domain: default\nrules: [{id: all, limits: [{limit: 5, window: 1m}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	log := bytes.Repeat([]byte(`{"ts":1770000060,"user":"a","user_agent":"curl/8"}`+"\n"), 49)
	log = append([]byte(`{"ts":1770000000,"user":"a","user_agent":"curl/8"}`+"\n"), log...)
	_, found := suggestionOf(t, SuggestConfig{Config: Config{Format: JSON, Rules: set}, Touch: 1}, log)
	if r := found.Rules[0]; r.MachineKeys != 0 || r.WellBehaved != 1 || len(r.Limits) != 1 || r.Limits[0].Needed != 50 {
		t.Errorf("%+v", r)
	}
}
