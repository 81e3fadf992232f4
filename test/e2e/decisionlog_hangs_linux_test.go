package e2e

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

// A decision log that cannot be written for now, as on a file system that hangs, keeps a node neither from reading its files
// again nor from stopping. A pipe that is not read stands for the file system.
func TestNodeStopsWhileItsDecisionLogHangs(t *testing.T) {
	testform.NotInBrief(t)
	path := filepath.Join(t.TempDir(), "decisions.log")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	n := process.Start(t, "--decision-log", path, "--decision-log-which", "all")
	const checks = 1000 // of some 300 bytes: four times what a pipe takes
	for range checks {
		if _, err := n.Client.Check(t.Context(), &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: "alice"}); err != nil {
			t.Fatal(err)
		}
	}
	n.Signal(syscall.SIGHUP)
	n.Signal(syscall.SIGTERM)
	if code := n.Wait(10 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
