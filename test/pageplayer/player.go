// Package pageplayer does what a reader of a document does: it types the commands, and compares what they print with what is shown.
package pageplayer

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
	{regexp.MustCompile(`(yes +yes +)\d+`), "${1}N"},  // partitions
	{regexp.MustCompile(`(?m) host-\d+$`), " OWNER"},  // of a key
	{regexp.MustCompile(`(?m)^view \d+,`), "view N,"}, // members may come together
	{regexp.MustCompile(`(?m) node-\d$`), " OWNER"},   // of a key
	{regexp.MustCompile(`(?m)^ *\d+ (SOURCE_[A-Z]+|allowed|denied)$`), "N $1"},
	{regexp.MustCompile(`(?m)^(weir_\w+\{.*\}) \d+$`), "$1 N"},
	{regexp.MustCompile(` +`), " "},         // columns
	{regexp.MustCompile(`(?m)[ \r]+$`), ""}, // ends of lines
}

// Abstract returns an output without what differs from one run to the next.
func Abstract(text string) string {
	for _, a := range abstractions {
		text = a.pattern.ReplaceAllString(text, a.text)
	}
	return strings.TrimSpace(text)
}

// Player types the commands of a document, as its reader does: nodes stand at the ports that it names, on
// the address of this process.
type Player struct {
	Document string
	Env      []string // of all commands
	Dev      *Dev     // weir dev, if it runs
	Compared int      // outputs
	// Daily says that windows of the document's limits are a day long: edges of shorter ones do not matter.
	Daily bool

	t       *testing.T
	host    string   // what the document calls host
	dir     string   // the working directory
	log     *os.File // of all nodes
	started []*startedNode
	last    string // the command before
}

// startedNode is a node that a document has started.
type startedNode struct {
	http string
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

// New returns a player of a document, which is named as from the root of the module.
func New(t *testing.T, document string) *Player {
	p := &Player{t: t, Document: document, dir: t.TempDir()}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if p.host, err = os.Hostname(); err != nil {
		t.Fatal(err)
	}
	for _, used := range []string{"deploy", "docs"} {
		if err := os.Symlink(filepath.Join(root, used), filepath.Join(p.dir, used)); err != nil {
			t.Fatal(err)
		}
	}
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, ".curlrc"), []byte("silent\nfail-with-body\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if p.log, err = os.Create(filepath.Join(t.TempDir(), "log")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Dir(process.Binary(t)) + ":" + os.Getenv("PATH")
	p.Env = []string{"HOME=" + home, "PATH=" + path, "WEIR_NODE=" + process.Host(p.t) + ":9090"}
	t.Cleanup(func() {
		p.stopNodes()
		defer p.log.Close()
		if t.Failed() {
			log, err := os.ReadFile(p.log.Name())
			t.Logf("log of all nodes: %v\n%s", err, log)
		}
	})
	return p
}

// Do does one step.
func (p *Player) Do(s Step) {
	p.t.Helper()
	s.Command = strings.Replace(s.Command, "go run ./cmd/weir", "weir", 1)
	s.Command = strings.NewReplacer("127.0.0.1", process.Host(p.t), "host-909", p.host+"-909").Replace(s.Command)
	repeats := s.Command == p.last // what it counts on is in the window of the one before
	p.last = s.Command
	if strings.HasPrefix(s.Command, "weir certs init ") {
		s.Command += " --host " + process.Host(p.t) // by default certificates are for 127.0.0.1
	}
	switch {
	case strings.HasPrefix(s.Command, "weir bench "):
	case strings.HasPrefix(s.Command, "weir dev"), strings.HasPrefix(s.Command, Typed):
		p.dialogue(s)
	case strings.HasPrefix(s.Command, "weir serve"):
		p.serve(strings.TrimSuffix(s.Command, " &"))
	case kill.MatchString(s.Command):
		p.kill(s)
	case s.Output == nil:
		if out, code := p.Run(s.Command); code != 0 {
			p.t.Fatalf("%s:%d: %s ends with code %d:\n%s", p.Document, s.Line, s.Command, code, out)
		}
	default:
		p.compare(s, repeats)
	}
}

// dialogue starts weir dev, or types into it. It prints the lines that are shown, and others may come between them: those that the
// commands before have led to.
func (p *Player) dialogue(s Step) {
	p.t.Helper()
	if line, isTyped := strings.CutPrefix(s.Command, Typed); !isTyped {
		// A busy machine makes owners late; outputs would name another source.
		args := slices.Concat(strings.Fields(s.Command)[2:], []string{"--", "--peer-timeout", "2s"})
		p.Dev = RunDev(p.t, args...)
	} else {
		p.Dev.TypeIn(line)
	}
	if s.Command == Typed+"quit" {
		p.Dev.Gone()
		return
	}
	p.Compared++
	for want := range strings.Lines(*s.Output) {
		p.Dev.AwaitLine(s.Command+" prints "+want, func(line string) bool {
			return Abstract(strings.ReplaceAll(line, process.Host(p.t), "127.0.0.1")) == Abstract(want)
		})
	}
}

// compare runs a command, whose output must be as shown. It repeats the command before if repeats is true.
func (p *Player) compare(s Step, repeats bool) {
	p.t.Helper()
	p.Compared++
	want := Abstract(*s.Output)
	once := func() error {
		out, _ := p.Run(s.Command) // the output says how it has ended
		if got := Abstract(out); got != want {
			return fmt.Errorf("%s prints\n%s\n\nand %s:%d shows\n%s", s.Command, got, p.Document, s.Line, want)
		}
		return nil
	}
	if looks.MatchString(s.Command) {
		process.Await(p.t, process.Patience, once)
		return
	}
	if !repeats {
		p.awaitWindow()
	}
	if err := once(); err != nil {
		p.t.Error(err)
	}
}

// awaitWindow waits for the next window if this one ends soon, as an edge would allow a few more. Windows are up to a day long.
func (p *Player) awaitWindow() {
	p.t.Helper()
	if left := 24*time.Hour - time.Duration(time.Now().UnixNano()%int64(24*time.Hour)); left < time.Minute {
		p.pause(left)
	}
	if left := 10*time.Second - time.Duration(time.Now().UnixNano()%int64(10*time.Second)); !p.Daily && left < 4*time.Second { // other tests run too
		p.pause(left)
	}
}

func (p *Player) pause(long time.Duration) {
	p.t.Helper()
	select {
	case <-time.After(long):
	case <-p.t.Context().Done():
		p.t.Fatal(p.t.Context().Err())
	}
}

// Run returns what a command prints, as if it was asked at the addresses of the document, and its code.
func (p *Player) Run(command string) (output string, code int) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), process.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", command)
	cmd.Dir, cmd.Env = p.dir, p.Env
	out, err := cmd.CombinedOutput()
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended):
		code = ended.ExitCode()
	case err != nil:
		p.t.Fatalf("%s: %v", command, err)
	}
	return strings.NewReplacer(process.Host(p.t), "127.0.0.1", p.host+"-909", "host-909").Replace(string(out)), code
}

// serve starts a node, and waits until it is ready. If one runs there already the reader was told to stop all.
func (p *Player) serve(command string) {
	p.t.Helper()
	n := &startedNode{http: cmp.Or(option(command, "--http"), process.Host(p.t)+":8080"), done: make(chan struct{})}
	if slices.ContainsFunc(p.started, func(other *startedNode) bool { return other.http == n.http }) {
		p.stopNodes()
	}
	n.cmd = exec.Command("bash", "-c", "exec "+command)
	n.cmd.Dir, n.cmd.Stdout, n.cmd.Stderr = p.dir, p.log, p.log
	// A busy machine makes owners late; outputs would name another source.
	n.cmd.Env = append(slices.Clone(p.Env), "WEIR_PEER_TIMEOUT=2s", "WEIR_GRPC="+process.Host(p.t)+":9090", "WEIR_HTTP="+process.Host(p.t)+":8080")
	if option(command, "--etcd") == "" {
		n.cmd.Env = append(n.cmd.Env, "WEIR_ETCD_LISTEN="+process.Host(p.t)+":2379")
	}
	if err := n.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		_ = n.cmd.Wait() // it serves, or it does not
		close(n.done)
	}()
	p.started = append(p.started, n)
	ca := option(command, "--tls-ca")
	process.Await(p.t, process.Patience, func() error { return p.isReady(n.http, ca) })
}

// isReady asks a node whether it is ready: by TLS if there is a file with its CA.
func (p *Player) isReady(address, ca string) error {
	scheme, transport := "http", &http.Transport{DisableKeepAlives: true}
	if ca != "" {
		text, err := os.ReadFile(filepath.Join(p.dir, ca))
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
func (p *Player) kill(s Step) {
	p.t.Helper()
	found := kill.FindStringSubmatch(s.Command)
	if found[2] != strconv.Itoa(len(p.started)) {
		p.t.Fatalf("%s:%d: %s: the last of %d nodes is not meant", p.Document, s.Line, s.Command, len(p.started))
	}
	n := p.started[len(p.started)-1]
	signal := syscall.SIGTERM
	if found[1] != "" {
		signal = syscall.SIGKILL
	}
	_ = n.cmd.Process.Signal(signal) // it may have ended
	select {
	case <-n.done:
		p.started = p.started[:len(p.started)-1]
	case <-time.After(30 * time.Second):
		p.t.Fatalf("%s:%d: %s: the node did not stop", p.Document, s.Line, s.Command)
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
func (p *Player) stopNodes() {
	p.t.Helper()
	for _, n := range p.started {
		_ = n.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	}
	for _, n := range p.started {
		select {
		case <-n.done:
		case <-time.After(30 * time.Second):
			_ = n.cmd.Process.Kill()
			<-n.done
			p.t.Errorf("the node at %s did not stop", n.http)
		}
	}
	p.started = nil
}
