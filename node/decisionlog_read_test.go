package node

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/decisionlog"
)

// A file is an older one of a log if its name has the time at which it was finished, and else is none: also if the log's name has no
// extension, or the name of another log begins with it.
func TestOlderFilesOfDecisions(t *testing.T) {
	for log, want := range map[string]string{
		"decisions.log": "decisions-2026-01-01T00-00-00.000.log decisions-2026-01-02T00-00-00.000.log",
		"decisions":     "decisions-2026-01-03T00-00-00.000",
		"other.log":     "",
	} {
		dir := t.TempDir()
		for _, name := range []string{
			"decisions.log", "decisions-2.log", "decisions-2026-01-02T00-00-00.000.log", "decisions-2026-01-01T00-00-00.000.log",
			"decisions", "decisions-2026-01-03T00-00-00.000", "decisions-audit-2026-01-01T00-00-00.000.log",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		paths, err := olderFiles(filepath.Join(dir, log))
		for i := range paths {
			paths[i] = filepath.Base(paths[i])
		}
		if got := strings.Join(paths, " "); err != nil || got != want {
			t.Errorf("of %s: %q, %v; want %q", log, got, err, want)
		}
	}
}

// Of a long file the lines since an instant are found without reading those before: at every instant that may be asked for the rest is what a
// reading from the first line has.
func TestSkipBefore(t *testing.T) {
	path, now := filepath.Join(t.TempDir(), "decisions.log"), time.Now()
	lines := make([]string, 2000)
	for i := range lines {
		lines[i] = lineAt(now.Add(time.Duration(i)*time.Second), "alice", "posts", true)
	}
	text := strings.Join(lines, "")
	if len(text) < 4*replayPiece {
		t.Fatalf("%d bytes are too few", len(text))
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for first := 0; first <= len(lines); first += 25 {
		since := now.Add(time.Duration(first) * time.Second)
		if err := skipBefore(file, since); err != nil {
			t.Fatal(err)
		}
		at, err := file.Seek(0, io.SeekCurrent)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Join(lines[first:], "")
		if before := int64(len(text)-len(want)) - at; before < 0 || before > 2*replayPiece {
			t.Errorf("line %d: it begins %d bytes before it", first, before)
		}
		got, err := io.ReadAll(&linesSince{since: since, from: bufio.NewReader(file)})
		if err != nil || string(got) != want {
			t.Errorf("since line %d: %d bytes, %v; want %d", first, len(got), err, len(want))
		}
	}
}

// The last hour of the log spans its files, the oldest first, and begins at the first line within it.
func TestHourOfDecisions(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	write := func(name string, changed time.Duration, ages ...time.Duration) {
		t.Helper()
		var text strings.Builder
		for _, age := range ages {
			text.WriteString(lineAt(now.Add(-age), age.String(), "posts", true))
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now, now.Add(-changed)); err != nil {
			t.Fatal(err)
		}
	}
	write("decisions-2026-01-01T00-00-00.000.log", 3*time.Hour, 4*time.Hour, 3*time.Hour)
	write("decisions-2026-01-01T02-00-00.000.log", 30*time.Minute, 2*time.Hour, 59*time.Minute, 30*time.Minute)
	write("decisions.log", 0, 20*time.Minute, time.Minute)
	write("decisions-notes.txt", 0, time.Minute)
	n := &node{opts: Options{DecisionLog: filepath.Join(dir, "decisions.log"), DecisionLogWhich: decisionlog.All, DecisionLogKeys: decisionlog.Clear}}
	lines, err := n.ownDecisions(now.Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(lines)
	if err != nil {
		t.Fatal(err)
	}
	want := ""
	for _, age := range []time.Duration{59 * time.Minute, 30 * time.Minute, 20 * time.Minute, time.Minute} {
		want += lineAt(now.Add(-age), age.String(), "posts", true)
	}
	if string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	if err := lines.Close(); err != nil {
		t.Error(err)
	}
	for lacks, o := range map[string]Options{
		"keeps no decision log":     {},
		"checks that are denied":    {DecisionLog: "x", DecisionLogWhich: decisionlog.Denied, DecisionLogKeys: decisionlog.Clear},
		"hashes in place of values": {DecisionLog: "x", DecisionLogWhich: decisionlog.All, DecisionLogKeys: decisionlog.Hashed},
	} {
		if _, err := (&node{opts: o}).ownDecisions(now); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), lacks) {
			t.Errorf("%v, want %q", err, lacks)
		}
	}
}
