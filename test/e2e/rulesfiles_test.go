package e2e

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/test/process"
)

// plant makes files of a directory, with the directories on the way. A text that begins with
// "->" is a symbolic link, one that begins with "domain " a file of that domain.
func plant(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path, text := filepath.Join(dir, name), files[name]
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if target, is := strings.CutPrefix(text, "->"); err == nil && is {
			err = os.Symlink(target, path)
		} else if err == nil {
			if domain, is := strings.CutPrefix(text, "domain "); is {
				text = "domain: " + domain + "\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 5}}]\n"
			}
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// domains returns those that a node has limits of.
func domains(t *testing.T, n *process.Node) string {
	t.Helper()
	resp, err := http.Get("http://" + n.HTTP + "/rlconfig")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, ".k: ")
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// runtimeTree is a directory as envoyproxy/ratelimit may have it.
var runtimeTree = map[string]string{
	"cur/rl/config/a.yaml": "domain a", "cur/rl/config/b": "domain b", "cur/rl/config/c.json": "domain c",
	"cur/rl/config/sub/s.yaml": "domain sub", "cur/rl/config/sub/deep/noext": "domain deep",
	"cur/rl/config/.dot/x.yaml": "domain dotdir", "cur/rl/config/.hid": "domain dotfile",
	"cur/rl/config.yaml": "domain sib", "cur/rl/config.d/x": "domain sibd", "cur/rl/configx/x": "domain not",
	"cur/rl/root.yaml": "domain root", "other/o.yaml": "domain out", "other/p.yaml": "domain unseen",
	"cur/rl/config/linkdir": "->../../../other", "cur/rl/config/linkfile": "->../../../other/o.yaml",
}

// The files of a directory are those that envoyproxy/ratelimit read of it in July 2026, when
// it was run with the same environment.
func TestFilesOfTheReference(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	plant(t, root, runtimeTree)
	for _, tc := range []struct{ env, want string }{
		{"", "a b c deep dotdir dotfile out sib sibd sub"},
		{"RUNTIME_IGNOREDOTFILES=true", "a b c deep out sib sibd sub"},
		{"RUNTIME_WATCH_ROOT=false", "a b c deep dotdir dotfile out sub"},
		{"RUNTIME_WATCH_ROOT=false RUNTIME_IGNOREDOTFILES=true", "a b c deep out sub"},
		{"RUNTIME_APPDIRECTORY=config.d", "sibd"},
		{"RUNTIME_WATCH_ROOT=false RUNTIME_APPDIRECTORY=config/sub", "deep sub"},
	} {
		t.Run(tc.env, func(t *testing.T) {
			env := []string{"RUNTIME_ROOT=" + filepath.Join(root, "cur"), "RUNTIME_SUBDIRECTORY=rl"}
			n := process.How{Env: append(env, strings.Fields(tc.env)...)}.Start(t)
			if got := domains(t, n); got != tc.want {
				t.Errorf("%s\nwant %s", got, tc.want)
			}
			const link = "linkdir: is not read: it is a link to a directory"
			if has := strings.Contains(n.Log(), link); has != strings.Contains(tc.want, "out") {
				t.Errorf("the log says %q: %t\n%s", link, has, n.Log())
			}
		})
	}
}

// What changes far below is seen, too, and so is what comes.
func TestFilesBelowAreFollowed(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	plant(t, root, runtimeTree)
	n := process.Start(t, "--rules", filepath.Join(root, "cur/rl/config"), "--rules-files", "visible")
	for _, step := range []struct {
		files map[string]string
		want  string
	}{
		{map[string]string{"deep/noext": "domain deeper"}, "a b c deeper out sub"},
		{map[string]string{"new/one": "domain new"}, "a b c deeper new out sub"},
		{map[string]string{"new/two": "domain newer"}, "a b c deeper new newer out sub"},
	} {
		plant(t, filepath.Join(root, "cur/rl/config/sub"), step.files)
		process.Await(t, process.Patience, func() error {
			if got := domains(t, n); got != step.want {
				return fmt.Errorf("%s, want %s", got, step.want)
			}
			return nil
		})
	}
}

// Every file of a directory that is not read is named, at the start and by lint, except for those that are
// read by another name, as in a ConfigMap of Kubernetes.
func TestUnreadFilesAreNamed(t *testing.T) {
	dir := t.TempDir()
	plant(t, dir, map[string]string{
		"..2026/a.yaml": "domain a", "..data": "->..2026", "a.yaml": "->..data/a.yaml", "b.yml": "domain b",
		"c.yaml.bak": "domain c", ".d.yaml": "domain d", "e.json": "domain e", "prod/f.yaml": "domain f", "prod/more/g": "domain g",
		".git/HEAD": "ref",
	})
	want := []string{
		`/.d.yaml: is not read: its name begins with a dot`,
		`/.git: is not read: its name begins with a dot`,
		`/c.yaml.bak: is not read: its name does not end in .yaml or .yml`,
		`/e.json: is not read: its name does not end in .yaml or .yml`,
		`/prod/f.yaml: is not read: it is not directly in the directory of the rules`,
		`/prod/more/g: is not read: it is not directly in the directory of the rules`,
	}
	n := process.Start(t, "--rules", dir)
	if got := domains(t, n); got != "a b" {
		t.Errorf("%s", got)
	}
	expect := func(text string, want []string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(text, dir+w) {
				t.Errorf("no %q in\n%s", w, text)
			}
		}
		if got := strings.Count(text, "is not read"); got != len(want) {
			t.Errorf("%d files are not read, want %d:\n%s", got, len(want), text)
		}
	}
	expect(n.Log(), want)
	lint := func(want int, args ...string) string {
		t.Helper()
		cmd := exec.Command(process.Binary(t), append([]string{"rules", "lint", "-f", dir}, args...)...)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != want {
			t.Errorf("exit code %d, want %d: %s", code, want, out)
		}
		return string(out)
	}
	expect(lint(0), want)
	// As envoyproxy/ratelimit reads it, a ConfigMap has its files twice, unless what begins with
	// a dot is left out.
	if out := lint(1, "--rules-files", "all"); !strings.Contains(out, `duplicate domain "a"`) || !strings.Contains(out, "RUNTIME_IGNOREDOTFILES") {
		t.Errorf("%s", out)
	}
	expect(lint(0, "--rules-files", "visible"), nil)
	t.Setenv("RUNTIME_IGNOREDOTFILES", "true")
	expect(lint(0), nil)
	if out := lint(2, "--rules-files", "some"); !strings.Contains(out, `--rules-files: "some" is not one of`) {
		t.Errorf("%s", out)
	}
	// Nothing to read is an error that says what there is.
	for _, name := range []string{"a.yaml", "b.yml"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("RUNTIME_IGNOREDOTFILES", "")
	expect(lint(1), append(want, `/..2026: is not read: its name begins with a dot`, `/..data: is not read: its name begins with a dot`))
}
