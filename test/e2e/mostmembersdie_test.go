package e2e

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

// toRemove finds what the health of a node tells an operator to do about a member that may be dead.
var toRemove = regexp.MustCompile(`node (\S+) \(incarnation 1\) is not known to have adopted the last change of members: .*\(weir nodes remove (\S+)\)`)

// Two of three members die at once. The third cannot tell that from being cut off, so members do not change, and its health says so. They change when
// an operator says that the two are dead, or half a minute later.
// It takes real time, as it is about what a real node tells an operator; the simulation plays the same in virtual time.
func TestMostMembersDie(t *testing.T) {
	testform.NotInBrief(t)
	t.Parallel()
	t.Run("an operator removes them", func(t *testing.T) {
		t.Parallel()
		last, _ := killTwoOfThree(t)
		process.Await(t, process.Patience, func() error {
			text := reasons(last)
			m := toRemove.FindStringSubmatch(text)
			if m == nil {
				if text != "" {
					return fmt.Errorf("health says %s", text)
				}
				return nil
			}
			// The view may be written meanwhile that does without it.
			out, err := exec.CommandContext(t.Context(), process.Binary(t), "nodes", "remove", m[2], "--node", last.GRPC).CombinedOutput()
			if err != nil && !strings.Contains(string(out), "it is no member") {
				t.Errorf("weir nodes remove %s: %v, %s", m[2], err, out)
			}
			return fmt.Errorf("health said %s", text)
		})
		awaitAllOwned(t, last)
	})
	t.Run("half a minute later", func(t *testing.T) {
		t.Parallel()
		last, dead := killTwoOfThree(t)
		process.Await(t, 3*process.Patience, func() error {
			text := reasons(last)
			for _, id := range dead {
				if want := "node " + id + " (incarnation 1) was given up although fewer than half of the members had adopted the view without it"; !strings.Contains(text, want) {
					return fmt.Errorf("health says %q", text)
				}
			}
			return nil
		})
		awaitAllOwned(t, last)
		if text := reasons(last); strings.Contains(text, "is not known to have adopted") {
			t.Errorf("health still says %s", text)
		}
	})
}

// killTwoOfThree kills two of three members, and waits until the health of the last one names both.
func killTwoOfThree(t *testing.T) (last *process.Node, dead []string) {
	t.Helper()
	_, nodes := startThree(t, rulesPerYear(yearlyLimit), "--peer-timeout", "4s")
	awaitSettled(t, nodes...)
	last = nodes[0]
	for _, n := range nodes[1:] {
		n.Kill()
		dead = append(dead, n.ID)
	}
	killed := time.Now()
	process.Await(t, process.Patience, func() error {
		text := reasons(last)
		found := make(map[string]bool)
		for _, m := range toRemove.FindAllStringSubmatch(text, -1) {
			found[m[1]] = m[1] == m[2]
		}
		for _, id := range dead {
			if !found[id] {
				return fmt.Errorf("health does not say of %s to remove it: %q", id, text)
			}
		}
		return nil
	})
	t.Logf("named after %v", time.Since(killed).Round(100*time.Millisecond))
	return last, dead
}

// awaitAllOwned waits until the owners of the counters decide each check.
func awaitAllOwned(t *testing.T, n *process.Node) {
	t.Helper()
	began := time.Now()
	process.Await(t, process.Patience, func() error {
		for i := range 100 {
			resp, err := n.Client.Check(t.Context(), user(fmt.Sprint("user-", i)))
			if err != nil || resp.GetSource() != weirv1.Source_SOURCE_OWNER {
				return fmt.Errorf("user %d: %v, %w", i, resp, err)
			}
		}
		return nil
	})
	t.Logf("decided by owners after %v", time.Since(began).Round(100*time.Millisecond))
}
