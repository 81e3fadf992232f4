package node

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/backtest"
	"github.com/weirlimit/weir/internal/decisionlog"
	"github.com/weirlimit/weir/rules"
)

// backtestRules deny some of the checks whether a machine makes 200 of them in a second or 5000.
const backtestRules = `
domain: default
rules:
  - {id: sliding, when: {endpoint: /a}, per: [user], limits: [{limit: 5, window: 400ms}, {limit: 60, window: 1s, algorithm: fixed_window}]}
  - {id: bucket, when: {endpoint: /a}, per: [plan], limits: [{limit: 4, window: 500ms, burst: 4, algorithm: token_bucket}]}
  - {id: gcra, when: {endpoint: /b}, per: [user], limits: [{limit: 6, window: 500ms, algorithm: gcra}]}
  - {id: leaky, when: {endpoint: /b}, per: [plan], max_delay: 10ms, limits: [{limit: 30, window: 1s, algorithm: leaky_bucket}]}
  - {id: log, when: {endpoint: /c}, per: [user], cost: 2, limits: [{limit: 6, window: 700ms, algorithm: sliding_window_log}]}
  - {id: buckets, when: {endpoint: /c}, per: [[plan], [user, plan]], limits: [{limit: 9, window: 700ms, algorithm: sliding_window_buckets}]}
  - {id: some, when: {endpoint: "/d*"}, per: [user], enforce: 40, limits: [{limit: 2, window: 500ms}]}
  - {id: soft, when: {endpoint: /e}, per: [user], mode: {soft: {over: 50%}}, limits: [{limit: 4, window: 500ms}]}
  - {id: free, when: {user: u3, endpoint: /a}, unlimited: true}
`

// A replay of a node's decision log decides every line as the node has: by all algorithms, for shares of keys that
// the cluster's secret has chosen, and for batches, peeks and tokens that were given back.
func TestDecisionLogIsReplayed(t *testing.T) {
	t.Parallel()
	opts := testOptions(t)
	dir := t.TempDir()
	opts.Rules = filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(opts.Rules, []byte(backtestRules), 0o600); err != nil {
		t.Fatal(err)
	}
	opts.DecisionLog, opts.DecisionLogWhich, opts.DecisionLogKeys = filepath.Join(dir, "decisions.log"), decisionlog.All, decisionlog.Clear
	opts.DecisionLogSize = 100 << 20
	opts.PeerTimeout = 10 * time.Second // it bounds how long checks queue, too: on a busy machine none is to be refused
	const calls = 3000
	r := rand.New(rand.NewPCG(3, 4))
	one := func() string {
		text := fmt.Sprintf(`{"identifier_type":"user","identifier":"u%d","endpoint":"/%c","attributes":{"plan":"p%d"}`, r.IntN(5), 'a'+rune(r.IntN(6)), r.IntN(2))
		switch r.IntN(8) {
		case 0:
			text += `,"peek":true`
		case 1:
			text += `,"tokens_requested":3`
		case 2:
			text += `,"tokens_requested":-1`
		}
		return text + "}"
	}
	lines := int64(0)
	info, stop, ended := start(t, opts)
	for range calls {
		path, body := "/v1/check", one()
		lines++
		if r.IntN(5) == 0 {
			path, body = "/v1/check:batch", `{"requests":[`+body+","+one()+","+one()+"]}"
			lines += 2
		}
		resp, err := http.Post("http://"+info.HTTP+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusTooManyRequests {
			t.Fatalf("%s: %v, %d %s", path, err, resp.StatusCode, text)
		}
	}
	stop()
	if err := <-ended; err != nil { // the log is whole then
		t.Error(err)
	}
	log, err := os.ReadFile(opts.DecisionLog)
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.Load(opts.Rules)
	if err != nil {
		t.Fatal(err)
	}
	run, err := backtest.New(backtest.Config{Rules: set, Format: backtest.Decisions})
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Read("decisions.log", bytes.NewReader(log)); err != nil {
		t.Fatal(err)
	}
	res := run.Result()
	if res.Lines != lines || res.Allowed+res.Denied != lines || len(res.Differing) > 0 {
		t.Errorf("%d lines of %d, %d allowed, %d denied, skipped %v, differing %v", res.Lines, lines, res.Allowed, res.Denied, res.Skipped, res.Differing)
	}
	if res.Denied < lines/20 || res.Denied > lines*9/10 || res.Unlimited == 0 || res.NoRule == 0 {
		t.Errorf("it tries too little: %d of %d denied, %d unlimited, %d without a rule", res.Denied, lines, res.Unlimited, res.NoRule)
	}
	for _, rule := range res.Rules {
		if rule.Rule != "free" && rule.Denied+rule.WouldDeny == 0 {
			t.Errorf("%s denies %d of %d, and would deny %d", rule.Rule, rule.Denied, rule.Lines, rule.WouldDeny)
		}
	}
	// With another limit, it decides otherwise: the comparison can fail.
	if other, err := rules.Parse("other.yaml", []byte(strings.Replace(backtestRules, "burst: 4,", "burst: 3,", 1))); err != nil {
		t.Fatal(err)
	} else if run, err = backtest.New(backtest.Config{Rules: other, Format: backtest.Decisions}); err != nil {
		t.Fatal(err)
	}
	if err := run.Read("decisions.log", bytes.NewReader(log)); err != nil {
		t.Fatal(err)
	}
	if res := run.Result(); len(res.Differing) == 0 {
		t.Error("another limit decides alike")
	}
}

// backtestDescriptors are limits of all kinds in the format of envoyproxy/ratelimit, which deny however slow a machine is.
const backtestDescriptors = `
domain: edge
descriptors:
  - key: user
    rate_limit: {name: user, unit: year, requests_per_unit: 40}
    descriptors:
      - {key: path, value: /slow, rate_limit: {unit: year, requests_per_unit: 15}}
      - {key: path, value: /free, rate_limit: {unlimited: true}}
      - {key: path, value: /own, rate_limit: {unit: year, requests_per_unit: 60, replaces: [{name: user}]}}
  - {key: path, value: /files/*, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: plan, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 50}}
  - {key: team, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 70}}
`

// envoyCall returns a call of Envoy in a domain, drawn from r. Some descriptors bring a limit with them.
func envoyCall(r *rand.Rand, domain string) string {
	entry := func(key, value string) string { return fmt.Sprintf(`{"key":%q,"value":%q}`, key, value) }
	one := func() string {
		user := entry("user", fmt.Sprint("u", r.IntN(3)))
		var list string
		if domain == "default" {
			list = user + "," + entry("endpoint", "/"+string('a'+rune(r.IntN(5)))) + "," + entry("plan", fmt.Sprint("p", r.IntN(2)))
		} else {
			list = []string{
				user, user + "," + entry("path", "/slow"), user + "," + entry("path", "/free"), user + "," + entry("path", "/own"),
				entry("path", fmt.Sprint("/files/", r.IntN(3))), entry("plan", fmt.Sprint("p", r.IntN(2))), entry("team", fmt.Sprint("t", r.IntN(2))), entry("other", "x"),
			}[r.IntN(8)]
		}
		text := `{"entries":[` + list + "]"
		if r.IntN(4) == 0 {
			text += fmt.Sprintf(`,"hitsAddend":"%d"`, r.IntN(4))
		}
		if r.IntN(6) == 0 {
			text += fmt.Sprintf(`,"limit":{"requestsPerUnit":%d,"unit":%q}`, []int{0, 7, 25, 1 << 31}[r.IntN(4)], []string{"YEAR", "MONTH"}[r.IntN(2)])
		}
		return text + "}"
	}
	list := one()
	for range r.IntN(3) {
		list += "," + one()
	}
	return `{"domain":"` + domain + `","descriptors":[` + list + "]}"
}

// logEnvoyCalls has a node with opts decide calls of Envoy, and returns its decision log and its rules.
func logEnvoyCalls(t *testing.T, opts Options, calls int) ([]byte, *rules.Set) {
	t.Helper()
	opts.Rules = t.TempDir()
	for name, text := range map[string]string{"rules.yaml": backtestRules, "edge.yaml": backtestDescriptors} {
		if err := os.WriteFile(filepath.Join(opts.Rules, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	opts.DecisionLog, opts.DecisionLogWhich, opts.DecisionLogKeys = filepath.Join(t.TempDir(), "decisions.log"), decisionlog.All, decisionlog.Clear
	opts.DecisionLogSize, opts.PeerTimeout = 100<<20, 10*time.Second
	r := rand.New(rand.NewPCG(18, 3))
	info, stop, ended := start(t, opts)
	for range calls {
		body := envoyCall(r, []string{"default", "edge"}[r.IntN(2)])
		resp, err := http.Post("http://"+info.HTTP+"/json", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusTooManyRequests {
			t.Fatalf("%v, %d %s", err, resp.StatusCode, text)
		}
	}
	stop()
	if err := <-ended; err != nil { // the log is whole then
		t.Error(err)
	}
	log, err := os.ReadFile(opts.DecisionLog)
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.Load(opts.Rules)
	if err != nil {
		t.Fatal(err)
	}
	return log, set
}

// A replay decides the calls of Envoy as the node has: by rules, by descriptors and by limits that calls bring with them, with every
// option that changes how they count, also if several descriptors of a call count in one counter.
func TestDecisionLogOfEnvoyIsReplayed(t *testing.T) {
	t.Parallel()
	for _, mode := range []struct {
		name                       string
		countDenied, shadow, quota bool
	}{
		{name: "plain"}, {name: "count denied", countDenied: true}, {name: "shadow", shadow: true}, {name: "quota", quota: true},
		{"count denied with quota", true, false, true}, {"all", true, true, true},
	} {
		t.Run(mode.name, func(t *testing.T) {
			opts := testOptions(t)
			opts.RLSCountDenied, opts.RLSShadow, opts.RLSQuota = mode.countDenied, mode.shadow, mode.quota
			const calls = 1500
			log, set := logEnvoyCalls(t, opts, calls)
			run, err := backtest.New(backtest.Config{Rules: set, Format: backtest.Decisions})
			if err != nil {
				t.Fatal(err)
			}
			if err := run.Read("decisions.log", bytes.NewReader(log)); err != nil {
				t.Fatal(err)
			}
			res := run.Result()
			// Buckets cannot be given back exactly, as calls are that quotas deny; the result says so of these lines.
			if res.Allowed+res.Denied != calls || len(res.Differing) > 0 && !mode.quota || res.Unexplained > 0 || len(res.Skipped) > 0 {
				t.Errorf("%d lines, %d allowed, %d denied, skipped %v, differing %v, inexact %v, %d unexplained",
					res.Lines, res.Allowed, res.Denied, res.Skipped, res.Differing, res.Inexact, res.Unexplained)
			}
			if mode.shadow != (res.Denied == 0) || !mode.shadow && (res.Allowed < calls/20 || res.Denied < calls/20) {
				t.Errorf("it tries too little: %d allowed, %d denied", res.Allowed, res.Denied)
			}
			denies := make(map[string]int64)
			for _, rule := range res.Rules {
				if rule.Domain == "edge" {
					denies[rule.Rule] = rule.Denied + rule.WouldDeny
					if rule.Rule == "user.path_/slow" && !mode.shadow && !mode.quota && (len(rule.Top) != 3 || !strings.Contains(rule.Top[0].Key, " path=/slow")) {
						t.Errorf("denied keys of %s: %v", rule.Rule, rule.Top)
					}
				}
			}
			for _, id := range []string{"user", "user.path_/slow", "path_/files/*", "plan", "team", backtest.OwnLimits} {
				if denies[id] == 0 {
					t.Errorf("%s never denies: %v", id, denies)
				}
			}
		})
	}
}
