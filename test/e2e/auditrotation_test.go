package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/test/process"
)

// The file of the audit log is renamed and opened again while changes are made, and no line is lost. If it cannot be opened, lines go on to the
// file before, and health says so.
func TestAuditLogIsRotated(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "log")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "audit.log")
	n := process.Start(t, "--rules", writeRules(t, lastingRule), "--audit-log", path)
	lines := func(path string) int {
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
		return bytes.Count(text, []byte("\n"))
	}
	reset := func() {
		ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
		defer cancel()
		if _, err := n.Client.Reset(ctx, &weirv1.ResetRateLimitRequest{IdentifierType: "user", Identifier: "alice"}); err != nil {
			t.Error(err)
		}
	}
	var made atomic.Int64
	var stop atomic.Bool
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for !stop.Load() {
				reset()
				made.Add(1)
			}
		})
	}
	defer func() {
		stop.Store(true)
		all.Wait()
	}()
	const times = 5
	for i := range times {
		process.Await(t, process.Patience, func() error {
			if lines(path) == 0 {
				return errors.New("the file has no line")
			}
			return nil
		})
		if err := os.Rename(path, fmt.Sprint(path, ".", i)); err != nil {
			t.Fatal(err)
		}
		n.Signal(syscall.SIGHUP)
	}
	process.Await(t, process.Patience, func() error {
		if lines(path) == 0 {
			return errors.New("the file has no line")
		}
		return nil
	})
	stop.Store(true)
	all.Wait()
	written := lines(path)
	for i := range times {
		written += lines(fmt.Sprint(path, ".", i))
	}
	if int64(written) != made.Load() {
		t.Errorf("%d lines of %d changes", written, made.Load())
	}
	moved := dir + "-moved"
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	n.Signal(syscall.SIGHUP)
	process.Await(t, process.Patience, func() error {
		if text := reasons(n); !strings.Contains(text, "the audit log was not opened again, and changes are recorded in the file before: audit-log: open "+path) {
			return fmt.Errorf("health says %q", text)
		}
		return nil
	})
	before := lines(filepath.Join(moved, "audit.log"))
	reset()
	if got := lines(filepath.Join(moved, "audit.log")); got != before+1 {
		t.Errorf("%d lines after %d and one change", got, before)
	}
	if err := os.Rename(moved, dir); err != nil {
		t.Fatal(err)
	}
	n.Signal(syscall.SIGHUP)
	process.Await(t, process.Patience, func() error {
		if text := reasons(n); strings.Contains(text, "audit") {
			return fmt.Errorf("health says %q", text)
		}
		return nil
	})
}
