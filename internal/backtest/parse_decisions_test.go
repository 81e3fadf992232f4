package backtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/rules"
)

// decided is a line of a decision log: the answer, and a descriptor for each user.
func decided(second int, allowed bool, users ...string) string {
	var parts []string
	for _, user := range users {
		parts = append(parts, fmt.Sprintf(`{"tokens":1,"entries":[{"key":"user","value":%q}]}`, user))
	}
	return fmt.Sprintf(`{"time":"2026-03-02T09:%02d:%02dZ","api":"envoy","domain":"default","keys":"clear","source":"owner","allowed":%t,"descriptors":[%s]}`+"\n",
		second/60, second%60, allowed, strings.Join(parts, ","))
}

// Two descriptors of one request of Envoy may count in one counter: the second one finds what the first one has taken.
func TestRequestsThatTakeTwiceOfACounter(t *testing.T) {
	for _, algorithm := range []string{"sliding_window", "fixed_window", "token_bucket", "sliding_window_log", "sliding_window_buckets"} {
		set, err := rules.Parse("rules.yaml", []byte("domain: default\nrules: [{id: a, per: [user], limits: [{limit: 5, window: 1h, algorithm: "+algorithm+"}]}]"))
		if err != nil {
			t.Fatal(err)
		}
		run, err := New(Config{Rules: set, Format: Decisions})
		if err != nil {
			t.Fatal(err)
		}
		log := decided(0, true, "a", "b", "a") + // a: 2, b: 1
			decided(0, true, "a", "a") + // a: 4
			decided(0, false, "b", "a", "a") + // a would be 6; nothing is counted
			decided(0, true, "b", "a") + // a: 5, b: 2
			decided(0, false, "a") +
			decided(0, true, "b", "b", "b") + // b: 5
			decided(0, false, "b")
		if err := run.Read("log", strings.NewReader(log)); err != nil {
			t.Fatal(err)
		}
		res := run.Result()
		if res.Allowed != 4 || res.Denied != 3 || len(res.Differing) > 0 {
			t.Errorf("%s: %d allowed, %d denied, differing %v", algorithm, res.Allowed, res.Denied, res.Differing)
		}
		if r := res.Rules[0]; r.Lines != 7 || r.Denied != 3 || r.Top[0].Denied != 2 || r.Keys != 2 {
			t.Errorf("%s: by rule %+v", algorithm, r)
		}
	}
}
