package node

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/decisionlog"
)

// logged starts a node with opts and sends it the given number of checks, one after the other. It calls between after each, with
// the check's index from 0, and fails the test unless every check is answered with 200.
func logged(t *testing.T, opts Options, checks int, between func(n *node, i int)) {
	t.Helper()
	n, err := build(t.Context(), Network{}, opts, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	const body = `{"identifier_type":"user","identifier":"alice","endpoint":"/x"}`
	for i := range checks {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "http://localhost/v1/check", strings.NewReader(body))
		if n.http.Handler.ServeHTTP(w, r); w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		between(n, i)
	}
}

// The log is renamed when it has reached DecisionLogSize. DecisionLogFiles renamed files are kept, and older ones removed. Every file
// has whole lines and is readable by its owner only.
func TestDecisionLogIsRotated(t *testing.T) {
	t.Parallel()
	opts := testOptions(t)
	dir := t.TempDir()
	opts.DecisionLog, opts.DecisionLogWhich = filepath.Join(dir, "decisions.log"), decisionlog.All
	opts.DecisionLogSize, opts.DecisionLogFiles = 1<<20, 2
	// Files that are there already count, too.
	for _, name := range []string{"decisions.log", "decisions-2026-01-01T00-00-00.000.log", "decisions-2026-01-02T00-00-00.000.log"} {
		if err := os.WriteFile(filepath.Join(dir, name), bytes.Repeat([]byte("{}\n"), 1<<20/3), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	logged(t, opts, 3, func(n *node, i int) {
		if i == 1 {
			if err := n.decisions.Close(); err != nil { // the third is dropped
				t.Error(err)
			}
		}
	})
	awaitRotated(t, dir)
	text, err := os.ReadFile(opts.DecisionLog)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	if len(lines) != 2 {
		t.Fatalf("%d lines", len(lines))
	}
	for _, text := range lines {
		var line decisionlog.Line
		if err := json.Unmarshal(text, &line); err != nil || line.Node != opts.ID || line.Source != "no_rule" {
			t.Errorf("%v: %s", err, text)
		}
	}
	if info, err := os.Stat(opts.DecisionLog); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v: %v", err, info.Mode())
	}
}

// awaitRotated waits until a directory has the log, the file that was renamed last and the youngest one of earlier runs, and no other.
func awaitRotated(t *testing.T, dir string) {
	t.Helper()
	late := time.After(time.Minute)
	again := time.NewTicker(lookEvery)
	defer again.Stop()
	for { // older files are removed a moment after the renaming
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		if len(files) == 3 && filepath.Base(files[0]) == "decisions-2026-01-02T00-00-00.000.log" && filepath.Base(files[2]) == "decisions.log" {
			return
		}
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("files: %q", files)
		}
	}
}

// After the file was renamed and the node told to reload, lines go to a new one.
func TestDecisionLogIsOpenedAgain(t *testing.T) {
	opts := testOptions(t)
	opts.DecisionLog, opts.DecisionLogWhich = filepath.Join(t.TempDir(), "decisions.log"), decisionlog.All
	logged(t, opts, 2, func(n *node, i int) {
		if i > 0 {
			return
		}
		for { // the first line is on its way
			if info, err := os.Stat(opts.DecisionLog); err == nil && info.Size() > 0 {
				break
			}
		}
		if err := os.Rename(opts.DecisionLog, opts.DecisionLog+".old"); err != nil {
			t.Fatal(err)
		}
		n.info().Reloader.Reload()
	})
	for _, name := range []string{opts.DecisionLog, opts.DecisionLog + ".old"} {
		if text, err := os.ReadFile(name); err != nil || bytes.Count(text, []byte("\n")) != 1 {
			t.Errorf("%v: %s has %q", err, name, text)
		}
	}
}

// A line that an earlier run has left unfinished does not spoil the first one. A file that others can read is named in the log.
func TestDecisionLogOfAnEarlierRun(t *testing.T) {
	t.Parallel()
	opts := testOptions(t)
	opts.DecisionLog, opts.DecisionLogWhich = filepath.Join(t.TempDir(), "decisions.log"), decisionlog.All
	if err := os.WriteFile(opts.DecisionLog, []byte(`{"version":1,"ti`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(opts.DecisionLog, 0o644); err != nil { // the umask may have taken rights away
		t.Fatal(err)
	}
	var log bytes.Buffer
	n, err := build(t.Context(), Network{}, opts, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	n.decisions.Add(&decisionlog.Line{})
	n.close()
	text, err := os.ReadFile(opts.DecisionLog)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(text, []byte("\n"))
	if len(lines) != 3 || string(lines[0]) != `{"version":1,"ti` || !json.Valid(lines[1]) || len(lines[2]) > 0 {
		t.Errorf("%q", text)
	}
	if !strings.Contains(log.String(), "other users of this machine can use the decision log") || !strings.Contains(log.String(), "mode=0644") {
		t.Error(log.String())
	}
}

// A file that cannot be made is an error at the start, which names the option.
func TestDecisionLogThatCannotBeOpened(t *testing.T) {
	opts := testOptions(t)
	opts.DecisionLog = filepath.Join(t.TempDir(), "missing", "decisions.log")
	if n, err := build(t.Context(), Network{}, opts, quiet()); err == nil {
		n.close()
		t.Fatal("no error")
	} else if !strings.HasPrefix(err.Error(), "decision-log: open "+opts.DecisionLog) {
		t.Error(err)
	}
}
