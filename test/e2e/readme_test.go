package e2e

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/test/process"
)

// Programs that the documents run and this test runs. What else they show installs, builds or measures.
var programs = []string{"weir", "curl", "go run ./cmd/weir"}

// Commands that only look: they are repeated until they print what is shown, as what they show may take a moment.
var looks = regexp.MustCompile(`^weir (nodes|ring|explain|status|rules (list|get|diff|lint|export)|config check)\b`)

// kill matches commands that end a node in the background, by its number.
var kill = regexp.MustCompile(`^kill (-9 )?%(\d)$`)

// What differs from one run to the next, in outputs.
var abstractions = []struct {
	pattern *regexp.Regexp
	text    string
}{
	{regexp.MustCompile(`;t=\d+`), ";t=N"},
	{regexp.MustCompile(`(running +)\d+`), "${1}N"},              // process
	{regexp.MustCompile(`(?m)(are members, view) \d+$`), "$1 N"}, // nodes may come together
	{regexp.MustCompile(`(?m)^(Retry-After|X-Ratelimit-Retry-After|X-RateLimit-Reset|Content-Length|Date): .*`), "$1: N"},
	{regexp.MustCompile(`"(reset_time|retry_after|reset_after)":"[0-9.]+s?"`), `"$1":N`},
	{regexp.MustCompile(`"retry_after_seconds":[1-9]\d*`), `"retry_after_seconds":N`},
	{regexp.MustCompile(`(retry after|resets in|in) ([0-9.]+(d|h|m|s|ms))+\b`), "$1 N"},
	{regexp.MustCompile(`(yes +yes +)\d+`), "${1}N"}, // partitions
	{regexp.MustCompile(`(?m) host-\d+$`), " OWNER"}, // of a key
	{regexp.MustCompile(`^view \d+,`), "view N,"},    // members may come together
	{regexp.MustCompile(`(?m) node-\d$`), " OWNER"},  // of a key
	{regexp.MustCompile(`(?m)^ *\d+ (SOURCE_[A-Z]+)$`), "N $1"},
	{regexp.MustCompile(`(?m)^(weir_\w+\{.*\}) \d+$`), "$1 N"},
	{regexp.MustCompile(` +`), " "},         // columns
	{regexp.MustCompile(`(?m)[ \r]+$`), ""}, // ends of lines
}

func abstract(text string) string {
	for _, a := range abstractions {
		text = a.pattern.ReplaceAllString(text, a.text)
	}
	return strings.TrimSpace(text)
}

// Every command of the README works, and prints what it shows.
func TestReadmeShowsRealOutput(t *testing.T) {
	t.Parallel()
	showsRealOutput(t, "README.md")
}

func TestTutorialShowsRealOutput(t *testing.T) {
	process.NotInBrief(t)
	t.Parallel()
	showsRealOutput(t, "docs/tutorial.md")
}

func TestPageOnRulesShowsRealOutput(t *testing.T) {
	process.NotInBrief(t)
	t.Parallel()
	showsRealOutput(t, "docs/change-rules.md")
}

func TestPageOnSizingShowsRealOutput(t *testing.T) {
	process.NotInBrief(t)
	t.Parallel()
	showsRealOutput(t, "docs/operations/sizing.md")
}

// showsRealOutput fails the test unless every command of a document works, and prints what is shown.
func showsRealOutput(t *testing.T, name string) {
	t.Helper()
	text, err := os.ReadFile("../../" + name)
	if err != nil {
		t.Fatal(err)
	}
	d := newDesk(t, name)
	for _, s := range steps(string(text), programs) {
		d.do(s)
	}
	if d.compared == 0 {
		t.Errorf("%s shows no output", name)
	}
}

// desk is where a reader types the commands of a document: nodes stand at the ports that it names, on
// the address of this process.
type desk struct {
	t        *testing.T
	document string
	host     string   // what the document calls host
	dir      string   // the working directory
	env      []string // of all commands
	log      *os.File // of all nodes
	started  []*startedNode
	dev      *typist // weir dev, if it runs
	last     string  // the command before
	compared int     // outputs
}

// startedNode is a node that a document has started.
type startedNode struct {
	http string
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

func newDesk(t *testing.T, document string) *desk {
	d := &desk{t: t, document: document, dir: t.TempDir()}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if d.host, err = os.Hostname(); err != nil {
		t.Fatal(err)
	}
	for _, used := range []string{"deploy", "docs"} {
		if err := os.Symlink(filepath.Join(root, used), filepath.Join(d.dir, used)); err != nil {
			t.Fatal(err)
		}
	}
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, ".curlrc"), []byte("silent\nfail-with-body\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if d.log, err = os.Create(filepath.Join(t.TempDir(), "log")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Dir(process.Binary(t)) + ":" + os.Getenv("PATH")
	d.env = []string{"HOME=" + home, "PATH=" + path, "WEIR_NODE=" + process.Host(d.t) + ":9090"}
	t.Cleanup(func() {
		d.stopNodes()
		defer d.log.Close()
		if t.Failed() {
			log, err := os.ReadFile(d.log.Name())
			t.Logf("log of all nodes: %v\n%s", err, log)
		}
	})
	return d
}

// do does one step.
func (d *desk) do(s step) {
	d.t.Helper()
	s.command = strings.Replace(s.command, "go run ./cmd/weir", "weir", 1)
	s.command = strings.NewReplacer("127.0.0.1", process.Host(d.t), "host-909", d.host+"-909").Replace(s.command)
	repeats := s.command == d.last // what it counts on is in the window of the one before
	d.last = s.command
	if strings.HasPrefix(s.command, "weir certs init ") {
		s.command += " --host " + process.Host(d.t) // by default certificates are for 127.0.0.1
	}
	switch {
	case strings.HasPrefix(s.command, "weir bench "):
	case strings.HasPrefix(s.command, "weir dev"), strings.HasPrefix(s.command, typed):
		d.dialogue(s)
	case strings.HasPrefix(s.command, "weir serve"):
		d.serve(strings.TrimSuffix(s.command, " &"))
	case kill.MatchString(s.command):
		d.kill(s)
	case s.output == nil:
		if out, code := d.run(s.command); code != 0 {
			d.t.Fatalf("%s:%d: %s ends with code %d:\n%s", d.document, s.line, s.command, code, out)
		}
	default:
		d.compare(s, repeats)
	}
}

// dialogue starts weir dev, or types into it. It prints the lines that are shown, and others may come between them: those that the
// commands before have led to.
func (d *desk) dialogue(s step) {
	d.t.Helper()
	if line, isTyped := strings.CutPrefix(s.command, typed); !isTyped {
		// A busy machine makes owners late; outputs would name another source.
		args := slices.Concat(strings.Fields(s.command)[2:], []string{"--", "--peer-timeout", "2s"})
		d.dev = runDev(d.t, args...)
	} else {
		d.dev.typeIn(line)
	}
	if s.command == typed+"quit" {
		d.dev.gone()
		return
	}
	d.compared++
	for want := range strings.Lines(*s.output) {
		d.dev.awaitLine(s.command+" prints "+want, func(line string) bool {
			return abstract(strings.ReplaceAll(line, process.Host(d.t), "127.0.0.1")) == abstract(want)
		})
	}
}

// compare runs a command, whose output must be as shown. It repeats the command before if repeats is true.
func (d *desk) compare(s step, repeats bool) {
	d.t.Helper()
	d.compared++
	want := abstract(*s.output)
	once := func() error {
		out, _ := d.run(s.command) // the output says how it has ended
		if got := abstract(out); got != want {
			return fmt.Errorf("%s prints\n%s\n\nand %s:%d shows\n%s", s.command, got, d.document, s.line, want)
		}
		return nil
	}
	if looks.MatchString(s.command) {
		process.Await(d.t, process.Patience, once)
		return
	}
	if !repeats {
		d.awaitWindow()
	}
	if err := once(); err != nil {
		d.t.Error(err)
	}
}

// awaitWindow waits for the next window if this one ends soon, as an edge would allow a few more. Windows are up to a day long.
func (d *desk) awaitWindow() {
	d.t.Helper()
	if left := 24*time.Hour - time.Duration(time.Now().UnixNano()%int64(24*time.Hour)); left < time.Minute {
		pause(d.t, left)
	}
	if left := 10*time.Second - time.Duration(time.Now().UnixNano()%int64(10*time.Second)); left < 4*time.Second { // other tests run too
		pause(d.t, left)
	}
}

// run returns what a command prints, as if it was asked at the addresses of the document, and its code.
func (d *desk) run(command string) (output string, code int) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), process.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", command)
	cmd.Dir, cmd.Env = d.dir, d.env
	out, err := cmd.CombinedOutput()
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended):
		code = ended.ExitCode()
	case err != nil:
		d.t.Fatalf("%s: %v", command, err)
	}
	return strings.NewReplacer(process.Host(d.t), "127.0.0.1", d.host+"-909", "host-909").Replace(string(out)), code
}

// serve starts a node, and waits until it is ready. If one runs there already the reader was told to stop all.
func (d *desk) serve(command string) {
	d.t.Helper()
	n := &startedNode{http: cmp.Or(option(command, "--http"), process.Host(d.t)+":8080"), done: make(chan struct{})}
	if slices.ContainsFunc(d.started, func(other *startedNode) bool { return other.http == n.http }) {
		d.stopNodes()
	}
	n.cmd = exec.Command("bash", "-c", "exec "+command)
	n.cmd.Dir, n.cmd.Stdout, n.cmd.Stderr = d.dir, d.log, d.log
	// A busy machine makes owners late; outputs would name another source.
	n.cmd.Env = append(slices.Clone(d.env), "WEIR_PEER_TIMEOUT=2s", "WEIR_GRPC="+process.Host(d.t)+":9090", "WEIR_HTTP="+process.Host(d.t)+":8080")
	if option(command, "--etcd") == "" {
		n.cmd.Env = append(n.cmd.Env, "WEIR_ETCD_LISTEN="+process.Host(d.t)+":2379")
	}
	if err := n.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	go func() {
		_ = n.cmd.Wait() // it serves, or it does not
		close(n.done)
	}()
	d.started = append(d.started, n)
	ca := option(command, "--tls-ca")
	process.Await(d.t, process.Patience, func() error { return d.isReady(n.http, ca) })
}

// isReady asks a node whether it is ready: by TLS if there is a file with its CA.
func (d *desk) isReady(address, ca string) error {
	scheme, transport := "http", &http.Transport{DisableKeepAlives: true}
	if ca != "" {
		text, err := os.ReadFile(filepath.Join(d.dir, ca))
		if err != nil {
			return err
		}
		scheme, transport.TLSClientConfig = "https", &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS13}
		transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(text)
	}
	resp, err := (&http.Client{Transport: transport}).Get(scheme + "://" + address + "/readyz")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s/readyz: %s", address, resp.Status)
	}
	return nil
}

// kill ends a node, the last one as jobs of a shell are numbered, and waits until it has ended.
func (d *desk) kill(s step) {
	d.t.Helper()
	found := kill.FindStringSubmatch(s.command)
	if found[2] != strconv.Itoa(len(d.started)) {
		d.t.Fatalf("%s:%d: %s: the last of %d nodes is not meant", d.document, s.line, s.command, len(d.started))
	}
	n := d.started[len(d.started)-1]
	signal := syscall.SIGTERM
	if found[1] != "" {
		signal = syscall.SIGKILL
	}
	_ = n.cmd.Process.Signal(signal) // it may have ended
	select {
	case <-n.done:
		d.started = d.started[:len(d.started)-1]
	case <-time.After(30 * time.Second):
		d.t.Fatalf("%s:%d: %s: the node did not stop", d.document, s.line, s.command)
	}
}

// option returns the value of an option in a command.
func option(command, name string) string {
	fields := strings.Fields(command)
	if i := slices.Index(fields, name); i >= 0 && i+1 < len(fields) {
		return fields[i+1]
	}
	return ""
}

// stopNodes ends all nodes as a user does.
func (d *desk) stopNodes() {
	d.t.Helper()
	for _, n := range d.started {
		_ = n.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	}
	for _, n := range d.started {
		select {
		case <-n.done:
		case <-time.After(30 * time.Second):
			_ = n.cmd.Process.Kill()
			<-n.done
			d.t.Errorf("the node at %s did not stop", n.http)
		}
	}
	d.started = nil
}
