package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/test/process"
)

func TestServeFailsInOneSentence(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() }) // all cases have ended by then
	bad := writeRules(t, "domain: default\nrules:\n  - id: x\n    limits: [{limit: 1, window: 5}]\n")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"gRPC port taken", []string{"--grpc", taken.Addr().String()}, 1, `^weir: grpc: listen tcp ` + taken.Addr().String() + `: bind: address already in use; name another address with --grpc\n$`},
		{"HTTP port taken", []string{"--http", taken.Addr().String()}, 1, `^weir: http: listen tcp ` + taken.Addr().String() + `: bind: address already in use; name another address with --http\n$`},
		{"etcd port taken", []string{"--etcd-listen", taken.Addr().String()}, 1, `^weir: .*etcd.*` + taken.Addr().String() + `.*address already in use; to join the node that runs there, pass --etcd ` + taken.Addr().String() + `\n$`},
		{"no such rules", []string{"--rules", "/no/such/rules.yaml"}, 2, `^weir: .*/no/such/rules.yaml.*no such file or directory\n$`},
		{"bad rules", []string{"--rules", bad}, 2, `^weir: .*rules.yaml:4:\d+: rule "x": limits\[0\].window: .*5.*\n$`},
		{"no etcd", []string{"--etcd", "127.0.0.1:1"}, 1, `^weir: etcd at 127.0.0.1:1: .*\n$`},
		{"a silent etcd", []string{"--etcd", taken.Addr().String()}, 1, `^weir: etcd at ` + taken.Addr().String() + `: .*\n$`},
		{"bad option", []string{"--log-level", "loud"}, 2, `^weir: --log-level: "loud" is not one of debug, info, warn, error\n$`},
		{"no data directory", []string{"--data-dir", file}, 2, `^weir: .*` + file + `.*not a directory\n$`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"serve", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--etcd-listen", "127.0.0.1:0", "--data-dir", t.TempDir()}, tc.args...)
			cmd := exec.Command(process.Binary(t), args...)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			start := time.Now()
			err := cmd.Run()
			if code := cmd.ProcessState.ExitCode(); err == nil || code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			if took := time.Since(start); took > process.Patience/2 { // 5 s, and what a busy machine needs to start a process
				t.Errorf("took %v", took)
			}
			if said := lastWords(t, stderr.String()); !regexp.MustCompile(tc.want).MatchString(said) || stdout.Len() > 0 {
				t.Errorf("stderr %q, stdout %q, want %s", stderr.String(), stdout.String(), tc.want)
			}
		})
	}
}

// lastWords returns why serve has failed: an error about its options as it is, and any other
// from the last line of the log, which it must be.
func lastWords(t *testing.T, stderr string) string {
	t.Helper()
	if strings.HasPrefix(stderr, "weir: ") {
		return stderr
	}
	lines := logLines(t, stderr)
	if last := lines[len(lines)-1]; last.Level == "ERROR" && last.Msg == "the node has failed" {
		return "weir: " + last.Error + "\n"
	}
	return stderr
}

// logLine is what every line of a node's log has, and the error that some have.
type logLine struct {
	Time              time.Time
	Level, Msg, Error string
}

// logLines returns the lines of a log, each of which must be JSON.
func logLines(t *testing.T, log string) (lines []logLine) {
	t.Helper()
	for text := range strings.Lines(log) {
		var line logLine
		if err := json.Unmarshal([]byte(text), &line); err != nil || line.Time.IsZero() || line.Level == "" || line.Msg == "" {
			t.Errorf("%q is no line of the log: %v", text, err)
		}
		lines = append(lines, line)
	}
	return lines
}

// A node has one log, in one form, on standard error: what libraries say is in it, too.
func TestServeLogsInOneForm(t *testing.T) {
	t.Parallel()
	n := process.Start(t, "--rules", writeRules(t, rulesPerYear(1)), "--log-level", "debug")
	for _, address := range []string{n.GRPC, n.HTTP, n.Etcd} {
		for _, nonsense := range []string{"hello\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\x00\x05hello"} {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, nonsense); err != nil {
				t.Error(err)
			}
			_ = conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond)) // it can only be late
			_, _ = io.Copy(io.Discard, conn)                                 // what it answers does not matter
			_ = conn.Close()
		}
	}
	n.Signal(syscall.SIGTERM)
	if code := n.Wait(process.Patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	said := make(map[string]bool)
	for _, line := range logLines(t, n.Log()) {
		said[line.Msg] = true
	}
	for _, want := range []string{"ready", "stopping"} {
		if !said[want] {
			t.Errorf("the log lacks %q:\n%s", want, n.Log())
		}
	}
	if !strings.Contains(n.Log(), `"component":"grpc"`) && !strings.Contains(n.Log(), `"component":"etcd"`) {
		t.Errorf("no library has said anything:\n%s", n.Log())
	}
}

func TestStopsCleanly(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		n := process.Start(t, "--rules", writeRules(t, rulesPerYear(1)))
		if _, err := n.Client.Check(t.Context(), user("alice")); err != nil { // a connection that stays open
			t.Error(err)
		}
		n.Signal(s)
		if code := n.Wait(process.Patience); code != 0 {
			t.Errorf("%v: exit code %d", s, code)
		}
	}
}

// A node that is started again finds its etcd's data, and its place.
func TestSingleNodeRestarts(t *testing.T) {
	t.Parallel()
	n := process.Start(t, "--rules", writeRules(t, rulesPerYear(1)), "--data-dir", t.TempDir())
	for range 2 {
		n.Kill()
		n.Restart()
	}
	if got := n.Nodes().GetNodes(); len(got) != 1 || got[0].GetIncarnation() != 3 {
		t.Errorf("%v", got)
	}
}

func TestSecondNodeUnderOneIDIsRefused(t *testing.T) {
	t.Parallel()
	n := process.Start(t)
	cmd := exec.Command(process.Binary(t), "serve", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--etcd", n.Etcd, "--id", n.ID, "--data-dir", t.TempDir())
	out, _ := cmd.CombinedOutput()
	want := fmt.Sprintf("weir: id: %q is taken by a node that runs at %s; give this one another with --id\n", n.ID, n.GRPC)
	if code := cmd.ProcessState.ExitCode(); code != 1 || lastWords(t, string(out)) != want {
		t.Errorf("exit code %d, %q, want 1, %q", code, out, want)
	}
}

// What the README's quick start shows.
func TestQuickstart(t *testing.T) {
	t.Parallel()
	n := process.Start(t, "--rules", "../../deploy/examples/quickstart.yaml")
	var last *http.Response
	var body []byte
	for i := range 20 { // an edge of the window may give a few more
		resp, err := http.Post("http://"+n.HTTP+"/v1/check", "application/json",
			strings.NewReader(`{"identifier_type":"user","identifier":"alice","endpoint":"/api/v1/posts"}`))
		if err != nil {
			t.Fatal(err)
		}
		body, err = io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		last = resp
		if i == 0 && resp.StatusCode != http.StatusOK {
			t.Errorf("the first check: %s %s", resp.Status, body)
		}
		if resp.StatusCode == http.StatusTooManyRequests {
			break
		}
	}
	var decision struct {
		Allowed bool   `json:"allowed"`
		RuleID  string `json:"rule_id"`
		Source  string `json:"source"`
	}
	if err := json.Unmarshal(body, &decision); err != nil || decision.Allowed || decision.RuleID != "posts-per-user" || decision.Source != "SOURCE_OWNER" {
		t.Errorf("%v %s", err, body)
	}
	for header, want := range map[string]string{
		"Content-Type":            `^application/json$`,
		"Retry-After":             `^\d+$`,
		"RateLimit":               `^"posts-per-user";r=0;t=\d+$`,
		"RateLimit-Policy":        `^"posts-per-user";q=5;w=10$`,
		"X-RateLimit-Limit":       `^5$`,
		"X-RateLimit-Remaining":   `^0$`,
		"X-RateLimit-Reset":       `^\d+$`,
		"X-Ratelimit-Retry-After": `^\d+$`,
	} {
		if got := last.Header.Get(header); last.StatusCode != http.StatusTooManyRequests || !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%d, %s: %q, want %s", last.StatusCode, header, got, want)
		}
	}
	var out []byte
	code := 0
	for i := 0; i < 2 && code == 0; i++ { // at the edge of the window one token is back, and the next one 2 s later
		var err error
		out, err = exec.Command(process.Binary(t), "check", "--node", n.GRPC, "--json", "user=alice", "endpoint=/api/v1/posts").Output()
		code = exitCode(err)
	}
	if code != 1 || !json.Valid(out) {
		t.Errorf("weir check: exit code %d, %s", code, out)
	}
}

func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

func TestChangedRulesAreFollowed(t *testing.T) {
	t.Parallel()
	path := writeRules(t, rulesPerYear(1))
	n := process.Start(t, "--rules", path)
	limit := func() string {
		req := user("alice")
		req.Peek = true
		resp, err := n.Client.Check(t.Context(), req)
		return fmt.Sprint(resp.GetLimit(), " ", err)
	}
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(rulesPerYear(7))
	process.Await(t, process.Patience, func() error {
		if got := limit(); got != "7 <nil>" {
			return fmt.Errorf("limit %s, want 7", got)
		}
		return nil
	})
	write("nonsense")
	process.Await(t, process.Patience, func() error {
		if h := getHealth(t, n); !h.Degraded || !strings.Contains(strings.Join(h.Reasons, " "), "the rules before them stay in force") {
			return fmt.Errorf("not degraded: %+v", h)
		}
		return nil
	})
	if got := limit(); got != "7 <nil>" {
		t.Errorf("limit %s after a bad change, want 7", got)
	}
}

// health is what GET /v1/health says.
type health struct {
	Degraded bool     `json:"degraded"`
	Reasons  []string `json:"reasons"`
}

func getHealth(t *testing.T, n *process.Node) (h health) {
	t.Helper()
	resp, err := http.Get("http://" + n.HTTP + "/v1/health")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&h); err != nil {
		t.Fatal(err)
	}
	return h
}
