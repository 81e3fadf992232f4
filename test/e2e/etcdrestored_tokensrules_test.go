package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

// An etcd restored from a backup of the same view has the tokens of that backup again. Nodes keep those revoked that they have seen
// revoked, after a restart too, and name them until the next change of the tokens; tokens made since are lost. Nodes keep the newer
// rules and say so until the next change. docs/operations/etcd.md has what to do.
func TestRestoredTokensAndRules(t *testing.T) {
	testform.NotInBrief(t)
	t.Parallel()
	etcd := startRealEtcd(t)
	s := &tokenPair{t: t, p: process.NewCertificates(t), conns: make(map[string]*client.Node)}
	s.a = s.p.Start("a", "--etcd", etcd.endpoint)
	s.b = s.p.Start("b", "--etcd", etcd.endpoint)
	process.AwaitMembers(t, process.Patience, s.a, s.b)
	admin := func(n *process.Node, args ...string) string {
		t.Helper()
		out, err := weirWith(t, s.p, "client-admin", append(args, "--node", n.GRPC)...)
		if err != nil {
			t.Fatalf("weir %v: %v\n%s", args, err, out)
		}
		return out
	}
	apply := func(limit int) { t.Helper(); admin(s.a, "rules", "apply", "-f", writeRules(t, rulesPerYear(limit))) }
	// await waits until both nodes accept one token and refuse another, and have that limit.
	await := func(accepted, refused string, limit int) {
		t.Helper()
		process.Await(t, process.Patience, func() error {
			for _, n := range []*process.Node{s.a, s.b} {
				if err := s.check(n, accepted); err != nil {
					return fmt.Errorf("%s refuses the first token: %w", n.ID, err)
				}
				if err := s.check(n, refused); status.Code(err) != codes.Unauthenticated {
					return fmt.Errorf("%s does not refuse the second token: %w", n.ID, errors.Join(err, errors.New("a check was answered")))
				}
				if rules := admin(n, "rules", "export"); !strings.Contains(rules, fmt.Sprint("limit: ", limit, "\n")) && !strings.Contains(rules, fmt.Sprint("limit: ", limit, ",")) {
					return fmt.Errorf("%s has not the limit %d:\n%s", n.ID, limit, rules)
				}
			}
			return nil
		})
	}

	process.AwaitSettled(t, process.Patience, s.a, s.b)
	apply(100)
	early, kept := s.create("early", "check"), s.create("kept", "check")
	backup := filepath.Join(t.TempDir(), "weir.db")
	if err := etcd.control("snapshot", "save", backup); err != nil {
		t.Fatal(err)
	}
	apply(200)
	later := s.create("later", "check")
	admin(s.b, "tokens", "revoke", "early")
	await(later, early, 200)

	etcd.restore(backup)
	process.Await(t, process.Patience, func() error {
		for _, n := range []*process.Node{s.a, s.b} {
			why := reasons(n)
			if !strings.Contains(why, "it has revision 1 of the rules after revision 2") || !strings.Contains(why, "it has tokens again that were revoked: early;") {
				return fmt.Errorf("health of %s says %q", n.ID, why)
			}
		}
		return nil
	})
	await(kept, early, 200)
	await(kept, later, 200)
	if out, err := weirWith(t, s.p, "client-admin", "view", "import", "--yes", "--node", s.a.GRPC); err == nil || !strings.Contains(out, "there is nothing to import") {
		t.Errorf("the view is the same, and import says %v\n%s", err, out)
	}

	s.b.Kill()
	s.b.Restart()
	process.AwaitMembers(t, process.Patience, s.a, s.b)
	process.Await(t, process.Patience, func() error {
		why := reasons(s.b)
		if !strings.Contains(why, "it has tokens again that were revoked: early;") || !strings.Contains(why, "it has revision 1 of the rules after revision 2") {
			return fmt.Errorf("health of %s says %q after a restart", s.b.ID, why)
		}
		if err := s.check(s.b, kept); err != nil { // connects again
			return err
		}
		if err := s.check(s.b, early); status.Code(err) != codes.Unauthenticated {
			return fmt.Errorf("%s does not refuse the revoked token after a restart: %w", s.b.ID, errors.Join(err, errors.New("a check was answered")))
		}
		return nil
	})

	fresh := s.create("fresh", "check")
	apply(300)
	await(fresh, early, 300)
	process.Await(t, process.Patience, func() error {
		for _, n := range []*process.Node{s.a, s.b} {
			if why := reasons(n); why != "" {
				return fmt.Errorf("health of %s says %q after a token was created and rules were applied", n.ID, why)
			}
		}
		return nil
	})
}
