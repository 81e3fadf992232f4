package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/internal/decisionlog"
	"github.com/weirlimit/weir/test/process"
)

// With --decision-log stdout, standard output has one line for each check and nothing else, and standard error none of them.
func TestDecisionLogOnStdout(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "stdout")
	how := process.How{Prefix: []string{"sh", "-c", `exec "$@" > "$0"`, path}}
	n := how.Start(t, "--decision-log", "stdout", "--decision-log-which", "all", "--decision-log-keys", "clear")
	users := []string{"alice", "bob", "carol"}
	for _, user := range users {
		if _, err := n.Client.Check(t.Context(), &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: user}); err != nil {
			t.Fatal(err)
		}
	}
	n.Signal(syscall.SIGTERM)
	if code := n.Wait(process.Patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	if len(lines) != len(users)+1 || len(lines[len(users)]) > 0 { // behind the last end of a line is nothing
		t.Fatalf("standard output has not a line for each of %d checks:\n%s", len(users), text)
	}
	for i, user := range users {
		var line decisionlog.Line
		if err := json.Unmarshal(lines[i], &line); err != nil {
			t.Fatalf("%v: %s", err, lines[i])
		}
		if line.Node != n.ID || line.API != "check" || len(line.Descriptors) != 1 || line.Descriptors[0].Entries[0].Value != user {
			t.Errorf("want a check of %s by %s, got %s", user, n.ID, lines[i])
		}
	}
	if log := n.Log(); strings.Contains(log, `"descriptors"`) {
		t.Errorf("standard error has decisions:\n%s", log)
	}
}
