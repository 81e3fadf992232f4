package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/test/process"
)

// openTerminal returns the two ends of a terminal of so many lines.
func openTerminal(t *testing.T, rows uint16) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	t.Cleanup(func() { _ = ours.Close() })
	fd := int(ours.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: 40}); err != nil {
		t.Fatal(err)
	}
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

// weir top lists more keys than a terminal has lines, and shows its list once to what only looks like a terminal.
func TestTopOnTerminals(t *testing.T) {
	t.Parallel()
	const rows = 6
	ours, theirs := openTerminal(t, rows)
	n := process.Start(t, "--rules", writeRules(t, topRules))
	for i := range 2 * rows {
		decide(t, n, &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: fmt.Sprint("user", i), Endpoint: "/login"})
	}
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	args := []string{"top", "--window", "1h", "-n", "100", "--node", n.GRPC}
	watch := exec.CommandContext(ctx, process.Binary(t), args...)
	watch.Stdout, watch.Stderr = theirs, theirs
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close() // ours ends with the command
	const begin, end = "\x1b[?7l\x1b[H", "\x1b[?7h"
	got := ""
	for buf := make([]byte, 4096); strings.Count(got, end) < 2; {
		n, err := ours.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, got)
		}
		got += string(buf[:n])
	}
	if err := watch.Process.Signal(unix.SIGTERM); err != nil {
		t.Error(err)
	}
	_ = watch.Wait() // by the signal
	screen, _, _ := strings.Cut(strings.Split(got, begin)[1], end)
	if lines := strings.Count(screen, "\n"); lines != rows-1 || !strings.Contains(screen, "more lines: the terminal is too low") {
		t.Errorf("%d lines on %d rows: %q", lines, rows, got)
	}
	once := exec.CommandContext(ctx, process.Binary(t), args...) // its stdout is /dev/null
	if err := once.Run(); err != nil {
		t.Error("weir top > /dev/null: ", err)
	}
}
