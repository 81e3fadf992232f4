package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/weirlimit/weir/test/process"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// SIGHUP ends no node. It reads its rules again, from files and from etcd.
func TestHangup(t *testing.T) {
	t.Parallel()
	const rules = "domain: default\nrules: [{id: users, per: [user], limits: [{limit: %d, window: 1h}]}]\n"
	for name, args := range map[string][]string{"files": {"--rules", writeRules(t, fmt.Sprintf(rules, 3))}, "etcd": nil} {
		t.Run(name, func(t *testing.T) {
			n := process.Start(t, args...)
			says := func(text string, times int) {
				t.Helper()
				process.Await(t, process.Patience, func() error {
					if got := strings.Count(n.Log(), text); got < times {
						return fmt.Errorf("the log says %q %d times, want %d", text, got, times)
					}
					return nil
				})
			}
			outcome := "stored rules are those in force again"
			if args != nil {
				outcome = `"msg":"rules loaded"`
			}
			for i := range 3 {
				n.Signal(syscall.SIGHUP)
				says(outcome, i+1)
			}
			if args == nil {
				return
			}
			if err := os.WriteFile(args[1], fmt.Appendf(nil, rules, 7), 0o600); err != nil {
				t.Fatal(err)
			}
			n.Signal(syscall.SIGHUP)
			process.Await(t, process.Patience, func() error {
				resp, err := n.Client.Check(t.Context(), &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: "alice"})
				if err != nil || resp.GetLimit() != 7 {
					return fmt.Errorf("%v, %w", resp, err)
				}
				return nil
			})
		})
	}
}
