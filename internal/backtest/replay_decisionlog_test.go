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

// limited is a line of a decision log about the rule a, with what the log has of its limit.
func limited(at int, allowed bool, source, more string) string {
	return fmt.Sprintf(`{"time":"2026-03-02T09:00:09Z","node":"n","api":"check","domain":"default","keys":"clear","source":%q,"allowed":%t,"descriptors":[{"tokens":1,"entries":[{"key":"user","value":"u"}],`+
		`"limits":[{"rule":"a","index":0,"counter":"00000000000000000000000000000000","source":%q,"at":%d%s}]}]}`+"\n", source, allowed, source, 1_772_442_000_000_000_000+int64(at)*1e6, more)
}

// replayDecisions replays a decision log with a rule of 4 tokens an hour, and more of the rule.
func replayDecisions(t *testing.T, more, log string) *Result {
	t.Helper()
	set, err := rules.Parse("rules.yaml", []byte("domain: default\nrules: [{id: a, per: [user], "+more+"limits: [{limit: 4, window: 1h, algorithm: fixed_window}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	run, err := New(Config{Rules: set, Format: Decisions})
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Read("log", strings.NewReader(log)); err != nil {
		t.Fatal(err)
	}
	return run.Result()
}

// Lines are replayed in the order in which checks were decided, if they stand within a second of it.
func TestLinesAreReplayedInTheOrderOfDecisions(t *testing.T) {
	soon := limited(1, true, "owner", "") + limited(900, false, "owner", "") + limited(2, true, "owner", "") + limited(4, true, "owner", "") + limited(3, true, "owner", "")
	if res := replayDecisions(t, "", soon); len(res.Differing) > 0 || res.Denied != 1 || res.Backward > 0 {
		t.Errorf("differing %v, %d denied, %d backward", res.Differing, res.Denied, res.Backward)
	}
	late := limited(1, true, "owner", "") + limited(2, true, "owner", "") + limited(3, true, "owner", "") + limited(2000, false, "owner", "") + limited(3001, true, "owner", "") + limited(4, true, "owner", "")
	if res := replayDecisions(t, "", late); res.Differing["owner"] != 3 || res.Unexplained != 3 {
		t.Errorf("differing %v, %d unexplained", res.Differing, res.Unexplained)
	}
}

// Checks without an owner are decided by the failure policy of the rule, and by the share of each node.
func TestChecksWithoutAnOwner(t *testing.T) {
	var shared strings.Builder
	for i := range 6 {
		shared.WriteString(limited(i, i < 2, "local", `,"shares":2`)) // of 4
		shared.WriteString(strings.Replace(limited(i, i < 2, "local", `,"shares":3`), `"node":"n"`, `"node":"m"`, 1))
		shared.WriteString(limited(i, i < 4, "owner", ""))
	}
	if res := replayDecisions(t, "on_failure: local, ", shared.String()); len(res.Differing) > 0 || res.Denied != 10 || res.Sources["local"] != 12 || res.Inexact["undecided"] != 6 {
		t.Errorf("differing %v, %d denied, sources %v, inexact %v", res.Differing, res.Denied, res.Sources, res.Inexact)
	}
	for policy, source := range map[string]string{"allow": "fail_open", "deny": "fail_closed"} {
		var log strings.Builder
		for i := range 6 {
			log.WriteString(limited(i, policy == "allow", source, `,"shares":2`) + limited(i, i < 4, "owner", ""))
		}
		if res := replayDecisions(t, "on_failure: "+policy+", ", log.String()); len(res.Differing) > 0 || res.Sources[source] != 6 || res.Inexact["undecided"] != 6 {
			t.Errorf("%s: differing %v, sources %v, inexact %v", policy, res.Differing, res.Sources, res.Inexact)
		}
	}
}

// What the log does not say of a counter is counted, and lines that differ for that reason are explained.
func TestInexactLines(t *testing.T) {
	log := limited(0, true, "owner", "") + limited(1, true, "owner", `,"leases":true`) + limited(2, false, "owner", "") + limited(3, true, "lent", "") + limited(4, true, "provisional", "")
	res := replayDecisions(t, "", log)
	if res.Differing["owner"] != 1 || res.Differing["provisional"] != 1 || res.Unexplained != 0 || res.Inexact["lent"] != 3 || res.Inexact["provisional"] != 1 {
		t.Errorf("differing %v, %d unexplained, inexact %v", res.Differing, res.Unexplained, res.Inexact)
	}
	if res := replayDecisions(t, "", strings.Replace(log, `,"leases":true`, "", 1)); res.Unexplained != 1 {
		t.Errorf("%d unexplained", res.Unexplained)
	}
}

// A limit that a call of Envoy has brought with it and that is none makes its line a broken one.
func TestLimitsOfRequestsThatAreNone(t *testing.T) {
	for _, limit := range []string{
		`"algorithm":"fixed_window","limit":5`, `"algorithm":"x","limit":5,"window":1000000000`, `"algorithm":"fixed_window","limit":-5,"window":1000000000`,
		`"algorithm":"fixed_window","limit":5,"window":1000000000,"nominal":-1`, `"algorithm":"fixed_window","limit":3000000000,"window":1000000000`,
	} {
		line := strings.Replace(decided(0, true, "u"), `}]}]}`, `}],"limits":[{"index":0,"source":"owner",`+limit+`}]}]}`, 1)
		if res := replayDecisions(t, "", line); res.Skipped["broken"] != 1 {
			t.Errorf("%s: skipped %v", limit, res.Skipped)
		}
	}
}
