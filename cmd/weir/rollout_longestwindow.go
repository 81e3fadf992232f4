package main

import (
	"fmt"
	"math"
	"time"

	"github.com/weirlimit/weir/api"
	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/internal/backtest"
	"github.com/weirlimit/weir/rules"
)

// watchesWindows returns an error if a step is watched for less than the longest window of the rule: no caller may have
// reached a limit by then.
func (p *rollout) watchesWindows() error {
	longest, what, err := longestWindow(p.current)
	if err != nil || p.wait >= longest {
		return err
	}
	text := backtest.WindowText(longest)
	advice := fmt.Sprintf("wait %s or longer with --wait, or say that it may be shorter with --shorter-than-window if the rule has counted for so long already", text)
	if longest > mostPromoteWait {
		advice = fmt.Sprintf("let the rule count for %s before, and then say that it may be shorter with --shorter-than-window", text)
	}
	return fmt.Errorf("--wait: %s is less than the %s "+what+", so callers may not have reached the limit by then: %s", backtest.WindowText(p.wait), text, p.name, advice)
}

// longestWindow returns how long it takes at most until callers have used up a limit of a rule, and
// what takes so long, with a %s for the rule's name. It is the usual length of a window of the calendar. A limit of 0 takes
// no time.
func longestWindow(rule *weirv1.RateLimit) (longest time.Duration, what string, err error) {
	var limits []rules.LimitSpec
	for _, doc := range api.Documents([]*weirv1.RateLimit{rule}) {
		limits = append(limits, doc.Rules[0].Limits...)
	}
	set, err := rules.Compile("stored", []rules.Document{{Domain: "d", Rules: []rules.Spec{{ID: "r", Limits: limits}}}})
	if err != nil {
		return 0, "", fmt.Errorf("the limits of the rule: %w", err)
	}
	for _, l := range set.Rule("d", "r").Limits {
		if l.Limit == 0 {
			continue
		}
		if w := time.Duration(l.Length()); w > longest {
			longest, what = w, "of a window of %s"
		}
		if refill := float64(l.Length()) / float64(l.Limit) * float64(l.Capacity()); refill > float64(longest) {
			longest, what = time.Duration(min(refill, math.MaxInt64/2)), "that a full "+l.Algorithm.String()+" of %s takes to refill"
		}
	}
	return longest.Round(time.Millisecond), what, nil
}
