package rules

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestSourceSeesChange(t *testing.T) {
	overwrite := func(path, text string) error { return os.WriteFile(path, []byte(text), 0o644) }
	configMap := map[string]string{"..1/": "", "..1/r.yaml": ruleFile("a"), "..2/": "", "..2/r.yaml": ruleFile("b"), "..data": "->..1", "r.yaml": "->..data/r.yaml"}
	swap := func(dir, name, target string) error {
		return errors.Join(os.Symlink(target, dir+"/tmp"), os.Rename(dir+"/tmp", dir+"/"+name))
	}
	for _, c := range []struct {
		what   string
		files  map[string]string
		path   string
		change func(dir string) error
		want   string
	}{
		{"written in place", map[string]string{"r.yaml": ruleFile("a")}, "r.yaml", func(dir string) error {
			return overwrite(dir+"/r.yaml", ruleFile("b"))
		}, "d/b"},
		{"replaced", map[string]string{"r.yaml": ruleFile("a")}, "r.yaml", func(dir string) error {
			return errors.Join(overwrite(dir+"/r.tmp", ruleFile("b")), os.Rename(dir+"/r.tmp", dir+"/r.yaml"))
		}, "d/b"},
		{"backed up and written again", map[string]string{"r.yaml": ruleFile("a")}, "r.yaml", func(dir string) error {
			return errors.Join(os.Rename(dir+"/r.yaml", dir+"/r.yaml~"), overwrite(dir+"/r.yaml", ruleFile("b")))
		}, "d/b"},
		{"deleted and made again", map[string]string{"r.yaml": ruleFile("a")}, "r.yaml", func(dir string) error {
			return errors.Join(os.Remove(dir+"/r.yaml"), overwrite(dir+"/r.yaml", ruleFile("b")))
		}, "d/b"},
		{"one more file", map[string]string{"r.yaml": ruleFile("a")}, "", func(dir string) error {
			return overwrite(dir+"/s.yaml", ruleFile("b"))
		}, "d/a d/b"},
		{"one file less", map[string]string{"r.yaml": ruleFile("a"), "s.yaml": ruleFile("b")}, "", func(dir string) error {
			return os.Remove(dir + "/r.yaml")
		}, "d/b"},
		{"ConfigMap as a directory", configMap, "", func(dir string) error { return swap(dir, "..data", "..2") }, "d/b"},
		{"ConfigMap as a file", configMap, "r.yaml", func(dir string) error { return swap(dir, "..data", "..2") }, "d/b"},
		{"link on the way", map[string]string{"1/": "", "1/r.yaml": ruleFile("a"), "2/": "", "2/r.yaml": ruleFile("b"), "current": "->1"}, "current/r.yaml", func(dir string) error {
			return swap(dir, "current", "2")
		}, "d/b"},
		{"behind a link", map[string]string{"1/": "", "1/x": ruleFile("a"), "2/": "", "2/r.yaml": "->../1/x"}, "2", func(dir string) error {
			return overwrite(dir+"/1/x", ruleFile("b"))
		}, "d/b"},
		{"directory made again", map[string]string{"x/": "", "x/r.yaml": ruleFile("a")}, "x", func(dir string) error {
			return errors.Join(os.RemoveAll(dir+"/x"), os.Mkdir(dir+"/x", 0o755), overwrite(dir+"/x/r.yaml", ruleFile("b")))
		}, "d/b"},
		{"file's directory replaced", map[string]string{"x/": "", "x/r.yaml": ruleFile("a"), "y/": "", "y/r.yaml": ruleFile("b")}, "x", func(dir string) error {
			return errors.Join(os.Rename(dir+"/x", dir+"/z"), os.Rename(dir+"/y", dir+"/x"))
		}, "d/b"},
	} {
		t.Run(c.what, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, c.files)
			r := run(t, filepath.Join(dir, c.path), false)
			must(t, c.change(dir))
			r.becomes(t, c.want)
			// The watch has survived the change.
			file := filepath.Join(dir, strings.TrimSuffix(c.path, "r.yaml"), "r.yaml")
			must(t, overwrite(file, ruleFile("more")))
			receive(t, "set with more", r.changes, func(s *Set) bool { return strings.Contains(ruleNames(s), "d/more") })
		})
	}
}

func TestSourceRefusesBadChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.yaml")
	put := func(text string) {
		must(t, os.WriteFile(path+".tmp", []byte(text), 0o644), os.Rename(path+".tmp", path))
	}
	put(ruleFile("a"))
	r := run(t, path, false)
	good := r.Set()
	put(ruleFile("b", "c d", "e f"))
	line := r.says(t, "ERROR rules refused")
	for _, part := range []string{path + `:4:8: rule "c d"`, path + `:5:8: rule "e f"`, "rules_hash=" + good.Hash()} {
		if !strings.Contains(line, part) {
			t.Errorf("the log says %s, not %s", line, part)
		}
	}
	if e, ok := errors.AsType[*LoadError](r.Err()); !ok || len(e.Problems) != 2 || r.Set() != good {
		t.Errorf("Err is %v, set %s", r.Err(), ruleNames(r.Set()))
	}
	for _, c := range []struct {
		name, label string
		want        float64
	}{
		{"weir_rules_load_total", "success", 1},
		{"weir_rules_load_total", "failure", 1},
		{"weir_rules_loaded", "", 1},
		{"weir_rules_last_load_success", "", 0},
	} {
		if got := r.metric(t, c.name, c.label); got != c.want {
			t.Errorf("%s %s is %v, want %v", c.name, c.label, got, c.want)
		}
	}
	put(ruleFile("b", "c"))
	r.becomes(t, "d/b d/c")
	if err, loaded, ok := r.Err(), r.metric(t, "weir_rules_loaded", ""), r.metric(t, "weir_rules_last_load_success", ""); err != nil || loaded != 2 || ok != 1 {
		t.Errorf("after a good load: %v, %v loaded, success %v", err, loaded, ok)
	}
}

func TestSourceKeepsRulesOfDeletedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.yaml")
	must(t, os.WriteFile(path, []byte(ruleFile("a")), 0o644))
	r := run(t, path, false)
	good := r.Set()
	must(t, os.Remove(path))
	r.says(t, "no such file")
	if !errors.Is(r.Err(), fs.ErrNotExist) || r.Set() != good {
		t.Errorf("Err is %v, set %s", r.Err(), ruleNames(r.Set()))
	}
	// The same rules, with a comment, are no news for OnChange.
	must(t, os.WriteFile(path+".tmp", []byte("# back\n"+ruleFile("a")), 0o644), os.Rename(path+".tmp", path))
	r.says(t, "INFO rules loaded")
	if r.Err() != nil || r.Set() != good || len(r.changes) > 0 {
		t.Errorf("Err is %v, %d changes", r.Err(), len(r.changes))
	}
}

// Without watches the poll finds changes, and says each thing once.
func TestSourcePolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "r.yaml")
		must(t, os.WriteFile(path, []byte(ruleFile("a")), 0o644))
		r := run(t, path, true)
		for _, c := range []struct{ text, want string }{
			{ruleFile("b"), "d/b"},
			{"bad", "d/b"},
			{ruleFile("c"), "d/c"},
		} {
			must(t, os.WriteFile(path+".tmp", []byte(c.text), 0o644), os.Rename(path+".tmp", path))
			time.Sleep(10 * pollInterval)
			synctest.Wait()
			if got := ruleNames(r.Set()); got != c.want {
				t.Errorf("after %q: %s, want %s", c.text, got, c.want)
			}
		}
		got := ""
		for len(r.logs) > 0 {
			got += strings.Join(strings.Fields(<-r.logs)[:3], " ") + "; "
		}
		if want := "WARN rules cannot; INFO rules loaded; ERROR rules refused,; INFO rules loaded; "; got != want {
			t.Errorf("the log says %q, want %q", got, want)
		}
	})
}

// A reader that runs all the time sees whole sets only.
func TestSourceSwapsWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.yaml")
	must(t, os.WriteFile(path, []byte(ruleFile("a0", "b0")), 0o644))
	r := run(t, path, false)
	stop, stopped := make(chan struct{}), make(chan string)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- ""
				return
			default:
			}
			ms := r.Set().Match(testHasher, request("d"), nil)
			if len(ms) != 2 || ms[0].Rule.ID[1:] != ms[1].Rule.ID[1:] {
				stopped <- matched(ms)
				return
			}
		}
	}()
	for i := range 3 {
		ids := []string{fmt.Sprint("a", i+1), fmt.Sprint("b", i+1)}
		must(t, os.WriteFile(path+".tmp", []byte(ruleFile(ids...)), 0o644), os.Rename(path+".tmp", path))
		r.becomes(t, "d/"+ids[0]+" d/"+ids[1])
	}
	close(stop)
	if mixed := <-stopped; mixed != "" {
		t.Errorf("a reader saw %s", mixed)
	}
}

func TestOpenRefuses(t *testing.T) {
	reg := prometheus.NewRegistry()
	path := filepath.Join(t.TempDir(), "r.yaml")
	if _, err := Open(path, Options{}, slog.New(make(logs)), reg); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opened a file that is not there: %v", err)
	}
	must(t, os.WriteFile(path, []byte(ruleFile("a")), 0o644))
	if _, err := Open(path, Options{}, slog.New(make(logs)), reg); err != nil {
		t.Error(err)
	}
	if _, err := Open(path, Options{}, slog.New(make(logs)), reg); err == nil || !strings.HasPrefix(err.Error(), "register the metrics of rules: ") {
		t.Errorf("registered twice: %v", err)
	}
}

func TestSourceWithoutRules(t *testing.T) {
	r := run(t, "", false)
	if r.Set().Len() != 0 || r.Err() != nil {
		t.Errorf("%d rules, %v", r.Set().Len(), r.Err())
	}
}

// Reread reads what no watch has told, and says what came of it also if nothing has changed.
func TestReread(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	must(t, os.WriteFile(path, []byte(ruleFile("a")), 0o600))
	r := run(t, path, true)
	r.says(t, "only polled")
	must(t, os.WriteFile(path, []byte(ruleFile("a", "b")), 0o600))
	r.Reread()
	r.becomes(t, "d/a d/b")
	r.says(t, "rules loaded")
	r.Reread()
	if line := r.says(t, "rules loaded"); !strings.Contains(line, "changed=false") {
		t.Errorf("of the same: %s", line)
	}
	must(t, os.WriteFile(path, []byte("x"), 0o600))
	for range 2 {
		r.Reread()
		r.says(t, "rules refused")
	}
}
