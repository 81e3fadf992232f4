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
	"syscall"
	"testing"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

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
	t.Parallel()
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
	t.Parallel()
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

// A node with the environment of envoyproxy/ratelimit needs no flags for it.
func TestEnvironmentOfTheReference(t *testing.T) {
	t.Parallel()
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
	n := process.How{Env: []string{
		"RUNTIME_ROOT=" + filepath.Join(root, "current"), "RUNTIME_SUBDIRECTORY=ratelimit", "SHADOW_MODE=true",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=localhost:6379", "USE_STATSD=false", "LOG_LEVEL=DEBUG",
	}}.Start(t) // which has flags for ports
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
	t.Parallel()
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

// Where the environment is that of envoyproxy/ratelimit, a quota that is looked at first and
// debited afterwards holds. Elsewhere the first look is warned about, once.
func TestLookThenDebit(t *testing.T) {
	t.Parallel()
	const warning = "a request of Envoy only looks (hits_addend: 0)"
	dir := t.TempDir()
	file := filepath.Join(dir, "limits.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(descriptorFile, "100", "5")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		env      string
		args     []string
		want     string
		warnings int
	}{
		{"RUNTIME_ROOT=" + dir + " RUNTIME_APPDIRECTORY=.", nil, "200 429 429 429", 0},
		{"LOCAL_CACHE_SIZE_IN_BYTES=0", []string{"--rules", file}, "200 429 429 429", 0},
		{"LOCAL_CACHE_SIZE_IN_BYTES=0 WEIR_RLS_COUNT_DENIED=false", []string{"--rules", file}, "200 429 200 200", 1},
		{"", []string{"--rules", file}, "200 429 200 200", 1},
		{"", []string{"--rules", file, "--rls-count-denied"}, "200 429 429 429", 0},
	} {
		t.Run(tc.env+strings.Join(tc.args, " "), func(t *testing.T) {
			n := process.How{Env: strings.Fields(tc.env)}.Start(t, tc.args...)
			var got []string
			for _, hits := range []int{0, 6, 0, 0} {
				body := fmt.Sprintf(`{"domain":"edge/one","descriptors":[{"entries":[{"key":"user","value":"alice"}],"hitsAddend":"%d"}]}`, hits)
				resp, err := http.Post("http://"+n.HTTP+"/json", "application/json", strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				got = append(got, fmt.Sprint(resp.StatusCode))
			}
			if got := strings.Join(got, " "); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
			if got := strings.Count(n.Log(), warning); got != tc.warnings {
				t.Errorf("%d warnings, want %d:\n%s", got, tc.warnings, n.Log())
			}
		})
	}
}

// Counters live in the nodes, which write them down when they stop. The page about migrating from envoyproxy/ratelimit
// says so.
func TestRestartOfAllNodesKeepsCounters(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(descriptorFile, "100", "1")), 0o600); err != nil {
		t.Fatal(err)
	}
	n := process.Start(t, "--rules", file, "--data-dir", t.TempDir())
	step := func(want ...int) {
		t.Helper()
		for _, code := range want {
			if got, body := askJSON(t, n, "user", "alice"); got != code {
				t.Errorf("%d, want %d: %s", got, code, body)
			}
		}
	}
	step(200, 429)
	n.Signal(syscall.SIGTERM)
	<-n.Ended()
	n.Restart()
	step(429)
	page, err := os.ReadFile("../../docs/reference/envoyproxy-ratelimit.md")
	if err != nil {
		t.Fatal(err)
	}
	const row = "| a restart of all nodes at once |"
	if !strings.Contains(string(page), row) {
		t.Errorf("the page has no row %q", row)
	}
}

// All descriptors of a request are limited by three nodes together, however many more than one question to a node holds.
func TestRequestOfManyDescriptors(t *testing.T) {
	_, nodes := startThree(t, strings.ReplaceAll(descriptorFile, "requests_per_unit: 100", "requests_per_unit: 2"), "--peer-timeout", "4s")
	conn, err := grpc.NewClient(nodes[0].GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ask := func(users ...string) string {
		t.Helper()
		req := &rlsv3.RateLimitRequest{Domain: "edge/one"}
		for _, u := range users {
			req.Descriptors = append(req.Descriptors, &commonv3.RateLimitDescriptor{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "user", Value: u}}})
		}
		resp, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		over := 0
		for _, s := range resp.GetStatuses() {
			if s.GetCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
				over++
			}
		}
		return fmt.Sprintf("%v, %d of %d over", resp.GetOverallCode(), over, len(resp.GetStatuses()))
	}
	users := make([]string, 4000)
	for i := range users {
		users[i] = fmt.Sprint("user-", i)
	}
	last := users[len(users)-1]
	for i, tc := range []struct {
		users []string
		want  string
	}{
		{users, "OK, 0 of 4000 over"},
		{[]string{last}, "OK, 0 of 1 over"},
		{users, "OVER_LIMIT, 1 of 4000 over"}, // which counts nothing
		{users[:len(users)-1], "OK, 0 of 3999 over"},
		{users, "OVER_LIMIT, 4000 of 4000 over"},
	} {
		// What a denied request has taken may be given back after its answer. A request that is denied for that counts nothing.
		process.Await(t, process.Patience, func() error {
			if got := ask(tc.users...); got != tc.want {
				return fmt.Errorf("request %d: %s, want %s", i, got, tc.want)
			}
			return nil
		})
	}
}
