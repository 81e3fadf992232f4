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
