package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirlimit/weir/test/process"
)

const descriptorFile = `domain: edge/one
descriptors:
  - key: user
    rate_limit:
      name: per-user
      unit: year
      requests_per_unit: 100
  - key: path
    value: /files/*
    rate_limit:
      unit: year
      requests_per_unit: 1
    shadow_mode: true
    share_threshold: true
`

// askJSON asks a node as clients of envoyproxy/ratelimit without gRPC do.
func askJSON(t *testing.T, n *process.Node, key, value string) (code int, body string) {
	t.Helper()
	resp, err := http.Post("http://"+n.HTTP+"/json", "application/json",
		strings.NewReader(`{"domain":"edge/one","descriptors":[{"entries":[{"key":"`+key+`","value":"`+value+`"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// Files of envoyproxy/ratelimit are stored, shown and changed like others, and three
// nodes hold their limits together.
func TestDescriptorsOfTheCluster(t *testing.T) {
	_, nodes := startThreeWith(t, "--peer-timeout", "4s")
	run := func(want int, stdin string, args ...string) string {
		t.Helper()
		code, output := weirRules(t, nodes[0], stdin, args...)
		if code != want {
			t.Errorf("weir rules %s: exit code %d, want %d\n%s", strings.Join(args, " "), code, want, output)
		}
		return output
	}
	has := func(output string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(output, part) {
				t.Errorf("no %q in\n%s", part, output)
			}
		}
	}
	has(run(0, descriptorFile, "apply", "-f", "-"), "+ edge/one/user\n+ edge/one/path_/files/*\n", "all 3 nodes run it")
	has(run(0, "", "list"), "edge/one", "path_/files/*", "100 per 365d fixed_window", "enforce 0%", "2 rules")
	has(run(0, "", "get", "user", "--domain", "edge/one"), "key: user", "requests_per_unit: 100")
	if exported := run(0, "", "export"); exported != descriptorFile {
		t.Errorf("exported\n%s\nwant\n%s", exported, descriptorFile)
	}
	has(run(0, "", "export", "--domain", "edge/one"), descriptorFile)
	has(run(0, descriptorFile, "diff", "-f", "-"), "nothing changes")
	has(run(2, "", "delete", "user", "--domain", "edge/one"), "the descriptors of a domain change together")
	has(run(2, "domain: other\nrules: [{id: r, limits: [{limit: 1, window: 1s}]}]\n---\n"+strings.ReplaceAll(descriptorFile, "edge/one", "other"), "apply", "-f", "-"),
		`domain "other" has descriptors too`)

	var passed atomic.Int64
	var wg sync.WaitGroup
	for i := range 300 {
		wg.Go(func() {
			if code, _ := askJSON(t, nodes[i%3], "user", "alice"); code == http.StatusOK {
				passed.Add(1)
			}
		})
	}
	wg.Wait()
	if n := passed.Load(); n != 100 {
		t.Errorf("%d of 300 passed, want 100", n)
	}
	for _, path := range []string{"/files/a", "/files/b"} {
		if code, body := askJSON(t, nodes[1], "path", path); code != 200 || !strings.Contains(body, `"requestsPerUnit":1,"unit":"YEAR"`) {
			t.Errorf("%d %s", code, body)
		}
	}
	has(run(0, "", "export", "--json"), `"descriptor_files"`)

	// What is raised keeps what was used.
	raised := strings.ReplaceAll(descriptorFile, "100", "101")
	has(run(1, raised, "diff", "-f", "-"), "~ edge/one/user\n    limits[0].limit: 100 -> 101\n    descriptor.rate_limit.requests_per_unit: 100 -> 101\n")
	run(0, raised, "apply", "-f", "-")
	for _, want := range []int{200, 429} {
		if code, _ := askJSON(t, nodes[2], "user", "alice"); code != want {
			t.Errorf("%d, want %d", code, want)
		}
	}
	has(run(0, "domain: edge/one\ndescriptors: []\n---\ndomain: other\nrules: []\n", "apply", "-f", "-", "--prune"), "- edge/one/user\n- edge/one/path_/files/*\n")
}

// What is denied counts, too, wherever it is asked, however often: nothing is lent.
func TestCountDeniedInTheCluster(t *testing.T) {
	_, nodes := startThree(t, descriptorFile, "--peer-timeout", "4s", "--rls-count-denied")
	var passed atomic.Int64
	var wg sync.WaitGroup
	for i := range 600 {
		wg.Go(func() {
			if code, _ := askJSON(t, nodes[i%3], "user", "alice"); code == http.StatusOK {
				passed.Add(1)
			}
		})
	}
	wg.Wait()
	if n := passed.Load(); n != 100 {
		t.Errorf("%d of 600 passed, want 100", n)
	}
	// 500 are too many. What asks in between is one more.
	for _, step := range []struct {
		hits, want int
	}{{499, http.StatusTooManyRequests}, {3, http.StatusOK}} {
		body := fmt.Sprintf(`{"domain":"edge/one","descriptors":[{"entries":[{"key":"user","value":"alice"}],"hitsAddend":"%d","isNegativeHits":true}]}`, step.hits)
		resp, err := http.Post("http://"+nodes[0].HTTP+"/json", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if code, text := askJSON(t, nodes[1], "user", "alice"); code != step.want {
			t.Errorf("after giving back %d: %d %s", step.hits, code, text)
		}
	}
}

// Whoever has the environment of envoyproxy/ratelimit needs no flags for it.
func TestEnvironmentOfTheReference(t *testing.T) {
	root := t.TempDir()
	config := filepath.Join(root, "releases", "1", "ratelimit", "config")
	if err := os.MkdirAll(config, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(config, "edge.yaml"), []byte(descriptorFile), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("releases/1", filepath.Join(root, "current")); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"RUNTIME_ROOT": filepath.Join(root, "current"), "RUNTIME_SUBDIRECTORY": "ratelimit", "SHADOW_MODE": "true",
		"REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": "localhost:6379", "USE_STATSD": "false", "LOG_LEVEL": "DEBUG",
	} {
		t.Setenv(name, value)
	}
	n := process.Start(t) // which has flags for ports
	for range 102 {
		if code, body := askJSON(t, n, "user", "alice"); code != http.StatusOK {
			t.Fatalf("a shadow denies: %d %s", code, body)
		}
	}
	if _, body := askJSON(t, n, "user", "alice"); !strings.Contains(body, `{"overallCode":"OK","statuses":[{"code":"OVER_LIMIT"`) {
		t.Error(body)
	}
	for _, part := range []string{`"variables":"REDIS_SOCKET_TYPE, REDIS_URL"`, `"variables":"USE_STATSD"`} {
		if !strings.Contains(n.Log(), part) {
			t.Errorf("no warning with %s:\n%s", part, n.Log())
		}
	}
}

// A file is linted as it is served.
func TestLintDescriptors(t *testing.T) {
	for _, tc := range []struct {
		text string
		code int
		want string
	}{
		{descriptorFile, 0, "good: 2 rules, 1 domain\n"},
		{strings.ReplaceAll(descriptorFile, "unit: year", "unit: century"), 1, `standard input:6:13: rule "user": rate_limit.unit: invalid rate limit unit "century"`},
		{descriptorFile + "    unit: day\n", 0, "warning: standard input:15:5: rule \"path_/files/*\": \"unit\" is ignored here, as it belongs to rate_limit\n"},
		{descriptorFile + "---\n" + descriptorFile, 1, `duplicate domain "edge/one" in config file`},
	} {
		cmd := exec.Command(process.Binary(t), "rules", "lint", "-f", "-")
		cmd.Stdin = strings.NewReader(tc.text)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != tc.code || !strings.Contains(string(out), tc.want) {
			t.Errorf("exit code %d, want %d: %s\nwant %s", code, tc.code, out, tc.want)
		}
	}
}
