package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/internal/testform"

	"github.com/weirlimit/weir/test/process"
)

// Versions of the packages: the one that is installed, and the one that it is updated to.
const (
	firstVersion  = "1.0.0"
	secondVersion = "1.0.1"
)

// TestFirstDay does what an operator does on the first day, with the files as shipped: the deb and the unit in it, alerts and the example of
// Envoy. Three nodes with TLS are installed, get rules, limit the requests of an Envoy, and are watched by a Prometheus. etcd is backed up, the
// nodes are updated one by one, one is killed, and etcd is lost and restored. No request fails meanwhile, and no caller gets more than the
// limit. The alerts about the node and about etcd fire, and end.
func TestFirstDay(t *testing.T) {
	testform.NotInBrief(t)
	t.Parallel()
	envoy, prometheus, dpkg := findThe(t, "envoy", "ENVOY", ""), findThe(t, "prometheus", "", "PROM_BIN"), findProgram(t, "dpkg-deb")
	etcd := startRealEtcd(t)
	dist := t.TempDir()
	mustRun(t, "../buildpackages", nil, "go", "run", ".", firstVersion, dist)

	// Install, make certificates, configure, start.
	o := newOperator(t, dpkg)
	for i := range 3 {
		o.install(fmt.Sprint("weir-", i+1), filepath.Join(dist, "weir.deb"))
	}
	checkPackages(t, dpkg, dist, firstVersion, o.services[0].root)
	o.weir("certs", "init", "--dir", o.certs.Dir, "--node", "weir-1,weir-2,weir-3", "--host", process.Host(t))
	o.weir("certs", "client", "envoy", "--role", "check:edge", "--dir", o.certs.Dir)
	o.weir("certs", "client", "prometheus", "--role", "metrics", "--dir", o.certs.Dir)
	var starting sync.WaitGroup
	for _, s := range o.services {
		o.configure(s, etcd.endpoint)
		starting.Go(s.start)
	}
	starting.Wait()
	o.awaitWhole(firstVersion)
	built := make(chan error, 1) // the next version, meanwhile
	go func() {
		cmd := exec.CommandContext(t.Context(), "go", "run", ".", secondVersion, dist, "deb")
		cmd.Dir = "../buildpackages"
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		built <- err
	}()

	// Rules, Envoy, Prometheus.
	o.weir("rules", "lint", "-f", envoyExample+"rules.yaml")
	if out := o.weir("rules", "apply", "-f", envoyExample+"rules.yaml"); !strings.Contains(out, "all 3 nodes run it") {
		t.Errorf("weir rules apply says\n%s", out)
	}
	edge := o.startEnvoy(envoy)
	day := time.Now().UTC().YearDay() // whose limit it is
	for i := range 7 {
		if got, want := edge.status(t, "alice"), map[bool]int{true: 200, false: 429}[i < 5]; got != want {
			t.Errorf("request %d of alice: %d, want %d", i, got, want)
		}
	}
	limited := func(when string) {
		t.Helper()
		if got := edge.status(t, "alice"); got != 429 && day == time.Now().UTC().YearDay() {
			t.Errorf("%s alice gets %d", when, got)
		}
	}
	callers := edge.call(t)
	watch := o.watch(prometheus)
	watch.await("WeirNodeDown", "inactive")
	o.weir("doctor", "--node", o.services[0].grpc)

	// A backup, and then an update of one node after the other.
	backup := filepath.Join(t.TempDir(), "weir.db")
	if err := etcd.control("snapshot", "save", backup); err != nil {
		t.Fatal(err)
	}
	before := o.weir("rules", "export")
	if err := <-built; err != nil {
		t.Fatal(err)
	}
	for _, s := range o.services {
		o.install(s.id, filepath.Join(dist, "weir.deb"))
		o.weir("config", "check", s.path("/etc/weir/weir.yaml"))
		s.stop()
		s.start()
		o.awaitWhole("")
	}
	o.awaitWhole(secondVersion)
	limited("after the update")

	// A node dies. systemd starts it again: Restart=on-failure.
	victim := o.services[2]
	victim.kill()
	watch.await("WeirNodeDown", "firing")
	limited("while a node is gone")
	victim.start()
	watch.await("WeirNodeDown", "inactive")
	o.awaitWhole(secondVersion)

	// etcd is lost, and restored from a backup that is older than the members.
	etcd.restore(backup)
	watch.await("WeirEtcdAlarm", "firing")
	if out := o.weir("view", "import", "--yes"); out == "" {
		t.Error("weir view import says nothing")
	}
	watch.await("WeirEtcdAlarm", "inactive")
	o.awaitWhole(secondVersion)
	limited("after etcd was restored")
	if after := o.weir("rules", "export"); after != before {
		t.Errorf("the rules were\n%s\nand are\n%s", before, after)
	}
	more := filepath.Join(t.TempDir(), "rules.yaml")
	text, err := os.ReadFile(envoyExample + "rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(more, bytes.Replace(text, []byte("requests_per_unit: 5}"), []byte("requests_per_unit: 6}"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := o.weir("rules", "apply", "-f", more); !strings.Contains(out, "all 3 nodes run it") {
		t.Errorf("after etcd was restored, weir rules apply says\n%s", out)
	}
	if got := edge.status(t, "alice"); got != 200 && day == time.Now().UTC().YearDay() {
		t.Errorf("with a limit of 6, the sixth request of alice gets %d", got)
	}
	limited("after six requests")
	o.weir("doctor", "--node", o.services[0].grpc)
	callers()
}

const envoyExample = "../../deploy/examples/envoy/"

// findThe returns where a program is: the file that a variable names, in the directory that a variable names, or in $PATH. Without it, it skips
// the test.
func findThe(t *testing.T, name, file, dir string) string {
	t.Helper()
	path := name
	if file != "" {
		path = cmp.Or(os.Getenv(file), name)
	}
	if dir != "" && os.Getenv(dir) != "" {
		path = filepath.Join(os.Getenv(dir), name)
	}
	found, err := exec.LookPath(path)
	if err != nil {
		skip(t, name+" is not installed; .ci/run gets it, and "+cmp.Or(file, dir)+" says where it is")
	}
	return found
}

// mustRun runs a command in a directory, with more variables, and returns what it prints.
func mustRun(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

// operator has machines with an installed package, each in a directory that stands for the root of its file system.
type operator struct {
	t        *testing.T
	dpkg     string
	certs    process.Certificates
	services []*service
}

func newOperator(t *testing.T, dpkg string) *operator {
	return &operator{t: t, dpkg: dpkg, certs: process.Certificates{Dir: filepath.Join(t.TempDir(), "certs")}}
}

// install puts the files of a package onto the machine of that id. Like dpkg it leaves a configuration that is there as it is.
func (o *operator) install(id, deb string) {
	o.t.Helper()
	dir := o.t.TempDir()
	mustRun(o.t, "", nil, o.dpkg, "--extract", deb, dir)
	for _, s := range o.services {
		if s.id == id {
			o.replace(filepath.Join(dir, "usr"), s.path("/usr"))
			return
		}
	}
	s := &service{t: o.t, id: id, root: dir, grpc: freeAddressOn(o.t, process.Host(o.t)), http: freeAddressOn(o.t, process.Host(o.t))}
	if err := os.MkdirAll(s.path("/var/lib/weir"), 0o700); err != nil { // StateDirectory
		o.t.Fatal(err)
	}
	o.services = append(o.services, s)
	o.t.Cleanup(func() {
		s.kill()
		if o.t.Failed() {
			text, err := os.ReadFile(s.path("/log"))
			o.t.Logf("log of %s, %v:\n%s", s.id, err, text)
		}
	})
}

// replace puts a directory in the place of another one, from which programs may be running.
func (o *operator) replace(from, to string) {
	o.t.Helper()
	if err := errors.Join(os.RemoveAll(to), os.Rename(from, to)); err != nil {
		o.t.Fatal(err)
	}
}

// configure edits /etc/weir/weir.yaml as it was installed, and has the installed program check it.
func (o *operator) configure(s *service, etcd string) {
	o.t.Helper()
	path := s.path("/etc/weir/weir.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		o.t.Fatal(err)
	}
	config := string(text)
	for key, value := range map[string]string{
		"grpc": s.grpc, "http": s.http, "etcd": "[" + etcd + "]", "tls-ca": o.certs.File("ca.crt"),
		"tls-cert": o.certs.File("node-" + s.id + ".crt"), "tls-key": o.certs.File("node-" + s.id + ".key"),
	} {
		line := regexp.MustCompile(`(?m)^# ` + key + `: .*$`)
		if !line.MatchString(config) {
			o.t.Fatalf("the packaged configuration has no line about %s:\n%s", key, config)
		}
		config = line.ReplaceAllLiteralString(config, key+": "+value)
	}
	// A busy machine is no reason to take a node for dead.
	config += "\nid: " + s.id + "\ntls-client-auth: require\npeer-timeout: 4s\n"
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		o.t.Fatal(err)
	}
	o.weir("config", "check", path)
}

// weir runs a command of the installed program with the certificate of an administrator, asking the first node.
func (o *operator) weir(args ...string) string {
	o.t.Helper()
	first := o.services[0]
	return mustRun(o.t, "", []string{
		"WEIR_NODE=" + first.grpc, "WEIR_TLS_CA=" + o.certs.File("ca.crt"),
		"WEIR_TLS_CERT=" + o.certs.File("client-admin.crt"), "WEIR_TLS_KEY=" + o.certs.File("client-admin.key"),
	}, append([]string{first.path("/usr/bin/weir")}, args...)...)
}

// awaitWhole waits until all nodes are ready members with all of their partitions, and of that version unless it is empty.
func (o *operator) awaitWhole(version string) {
	o.t.Helper()
	process.Await(o.t, process.Patience, func() error {
		var list weirv1.ListNodesResponse
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(o.weir("nodes", "--json", "--timeout", "30s")), &list); err != nil {
			return err
		}
		whole := 0
		for _, n := range list.GetNodes() {
			if n.GetMember() && n.GetReachable() && n.GetState() == weirv1.NodeState_NODE_STATE_READY && n.GetWanted() == 0 && n.GetLeaving() == 0 &&
				(version == "" || strings.Contains(n.GetVersion(), version)) {
				whole++
			}
		}
		if whole != len(o.services) || len(list.GetNodes()) != whole {
			return fmt.Errorf("%d nodes are whole: %v", whole, list.GetNodes())
		}
		return nil
	})
}

// service is a node that runs by the unit of its package.
type service struct {
	t          *testing.T
	id, root   string
	grpc, http string
	cmd        *exec.Cmd
	ended      chan struct{} // closed once the process has ended
	err        error         // how, once ended is closed
}

// path returns where a file of the machine is.
func (s *service) path(file string) string { return filepath.Join(s.root, file) }

// unit returns the value of a setting of the unit.
func (s *service) unit(setting string) string {
	s.t.Helper()
	text, err := os.ReadFile(s.path("/usr/lib/systemd/system/weir.service"))
	if err != nil {
		s.t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^` + setting + `=(.*)$`).FindSubmatch(text)
	if line == nil {
		s.t.Fatalf("the unit has no %s", setting)
	}
	return string(line[1])
}

// start does what systemd does with a unit of Type=notify: it starts the program, and returns when the program says that it is ready.
func (s *service) start() {
	dir, err := os.MkdirTemp(s.root, "run")
	if err != nil {
		s.t.Error(err)
		return
	}
	socket := filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		s.t.Error(err)
		return
	}
	log, err := os.OpenFile(s.path("/log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Error(err)
		return
	}
	defer log.Close()
	args := strings.Fields(s.unit("ExecStart"))
	for i, a := range args {
		if strings.HasPrefix(a, "/") {
			args[i] = s.path(a)
		}
	}
	cmd := exec.Command(args[0], args[1:]...)
	// What a manager gives to a service: nothing of the test's own environment.
	cmd.Env = []string{"PATH=/usr/bin:/bin", "NOTIFY_SOCKET=" + socket, strings.ReplaceAll(s.unit("Environment"), "%S", s.path("/var/lib"))}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		s.t.Error(err)
		return
	}
	ended, ready := make(chan struct{}), make(chan struct{})
	s.cmd, s.ended = cmd, ended
	go func() {
		s.err = cmd.Wait()
		close(ended)
		_ = conn.Close() // so that the reader ends
	}()
	go func() {
		for buf, said := make([]byte, 4096), false; ; {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			if !said && strings.Contains("\n"+string(buf[:n])+"\n", "\nREADY=1\n") {
				close(ready)
				said = true
			}
		}
	}()
	select {
	case <-ready:
	case <-ended:
		s.t.Errorf("%s has ended before it was ready: %v", s.id, s.err)
	case <-time.After(process.Patience):
		s.t.Errorf("%s is not ready after %v", s.id, process.Patience)
	}
}

// stop is systemctl stop.
func (s *service) stop() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatalf("SIGTERM to %s: %v", s.id, err)
	}
	select {
	case <-s.ended:
	case <-time.After(2 * time.Minute): // TimeoutStopSec
		s.t.Fatalf("%s does not stop", s.id)
	}
	if s.err != nil {
		s.t.Errorf("%s has stopped with %v", s.id, s.err)
	}
}

// kill ends the process as a crash would.
func (s *service) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // it may have ended
	<-s.ended
}

// edge is a running Envoy of the example, in front of an application that answers 200.
type edge struct {
	url    string
	client *http.Client
}

// startEnvoy starts an Envoy that asks the nodes, as the page has it with TLS, and waits until it takes all nodes for healthy.
func (o *operator) startEnvoy(program string) *edge {
	t := o.t
	t.Helper()
	example, err := os.ReadFile(envoyExample + "envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/envoy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## With TLS\n")
	_, block, found := strings.Cut(section, "```yaml\n")
	block, _, ended := strings.Cut(block, "```")
	if !found || !ended {
		t.Fatal("docs/envoy.md has no block of YAML on TLS")
	}
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "app") }))
	t.Cleanup(app.Close)
	listener, admin := freeAddress(t), freeAddress(t)
	at := func(address string) string {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		return "address: " + host + ", port_value: " + port
	}
	const one = "              - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 9091}}}\n"
	const plain = "    - name: weir\n      type: STRICT_DNS\n"
	nodes := ""
	for _, s := range o.services[1:] {
		nodes += strings.Replace(one, "address: 127.0.0.1, port_value: 9091", at(s.grpc), 1)
	}
	config := string(example)
	for _, change := range [][2]string{
		{one, nodes}, {at("127.0.0.1:9090"), at(o.services[0].grpc)},
		{at("127.0.0.1:10000"), at(listener)}, {at("127.0.0.1:9901"), at(admin)}, {at("127.0.0.1:8000"), at(app.Listener.Addr().String())},
		{plain, plain + strings.NewReplacer("/etc/weir/ca.crt", o.certs.File("ca.crt"), "/etc/weir/client-envoy", o.certs.File("client-envoy")).Replace(block)},
		// Requests that no node decides are to be seen. A busy machine is no reason to ask twice.
		{"failure_mode_deny: false", "failure_mode_deny: true"}, {"timeout: 0.1s", "timeout: 5s"}, {"max_interval: 0.05s", "max_interval: 5s"},
	} {
		if !strings.Contains(config, change[0]) {
			t.Fatalf("the example of Envoy has no %q", change[0])
		}
		config = strings.ReplaceAll(config, change[0], change[1])
	}
	path := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	o.run(program, "-c", path, "--log-level", "warn", "--disable-hot-restart", "--concurrency", "1")
	process.Await(t, process.Patience, func() error {
		text, err := textOf("http://" + admin + "/clusters")
		healthy := 0
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "weir::") && strings.HasSuffix(line, "::health_flags::healthy\n") {
				healthy++
			}
		}
		if err == nil && healthy != len(o.services) {
			err = fmt.Errorf("to Envoy %d nodes are healthy", healthy)
		}
		return err
	})
	return &edge{"http://" + listener, &http.Client{Timeout: process.Patience}}
}

// run runs a program until the test ends, and shows what it has printed if the test has failed.
func (o *operator) run(args ...string) {
	o.t.Helper()
	log, err := os.CreateTemp(o.t.TempDir(), "log")
	if err != nil {
		o.t.Fatal(err)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if o.t.Failed() {
			text, err := os.ReadFile(log.Name())
			o.t.Logf("log of %s, %v:\n%s", args[0], err, text)
		}
		_ = log.Close()
	})
}

// textOf returns a page.
func textOf(url string) (string, error) {
	resp, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// ask asks the application as a user, and returns the status.
func (e *edge) ask(ctx context.Context, user string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url+"/", nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("x-user", user)
	resp, err := e.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, bufio.NewReader(resp.Body))
	return resp.StatusCode, err
}

// status is ask for a request that must be answered.
func (e *edge) status(t *testing.T, user string) int {
	t.Helper()
	code, err := e.ask(t.Context(), user)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// call has a user with a high limit call the application, a hundred times in a second, until the returned function is called: it fails if a
// request was not allowed.
func (e *edge) call(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var requests, failed atomic.Int64
	var first atomic.Pointer[string]
	done := make(chan struct{})
	go func() {
		defer close(done)
		pause := time.NewTicker(10 * time.Millisecond)
		defer pause.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-pause.C:
			}
			code, err := e.ask(ctx, "batch")
			if ctx.Err() != nil {
				return
			}
			if requests.Add(1); code != http.StatusOK || err != nil {
				failed.Add(1)
				why := fmt.Sprintf("request %d at %v: status %d, %v", requests.Load(), time.Now().Format(time.TimeOnly), code, err)
				first.CompareAndSwap(nil, &why)
			}
		}
	}()
	end := sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(end)
	return func() {
		t.Helper()
		end()
		if failed.Load() > 0 || requests.Load() < 100 {
			t.Errorf("%d of %d requests failed, first %s", failed.Load(), requests.Load(), *cmp.Or(first.Load(), new(string)))
		}
		t.Logf("%d requests, %d failed", requests.Load(), failed.Load())
	}
}

// watcher is a running Prometheus, by its URL.
type watcher struct {
	t   *testing.T
	url string
}

// watch has a Prometheus scrape the nodes, and evaluate the alerts as shipped, except that one whose condition has to hold for a minute has to for
// a second here.
func (o *operator) watch(program string) *watcher {
	t := o.t
	t.Helper()
	alerts, err := os.ReadFile("../../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var targets []string
	for _, s := range o.services {
		targets = append(targets, strconv.Quote(s.http))
	}
	for name, text := range map[string]string{
		"alerts.yaml": strings.ReplaceAll(string(alerts), "for: 1m\n", "for: 1s\n"),
		"prometheus.yml": fmt.Sprintf(`
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [alerts.yaml]
scrape_configs:
  - job_name: weir
    scheme: https
    tls_config: {ca_file: %q, cert_file: %q, key_file: %q}
    static_configs: [{targets: [%s]}]
`, o.certs.File("ca.crt"), o.certs.File("client-prometheus.crt"), o.certs.File("client-prometheus.key"), strings.Join(targets, ", ")),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	address := freeAddress(t)
	o.run(program, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	w := &watcher{t, "http://" + address}
	process.Await(t, process.Patience, func() error { // all nodes have been scraped
		var answer struct {
			Data struct{ Result []struct{ Value [2]any } }
		}
		if err := w.get("/api/v1/query?query=sum(up)", &answer); err != nil {
			return err
		}
		if len(answer.Data.Result) != 1 || answer.Data.Result[0].Value[1] != strconv.Itoa(len(o.services)) {
			return fmt.Errorf("up is %v", answer.Data.Result)
		}
		return nil
	})
	return w
}

func (w *watcher) get(path string, answer any) error {
	text, err := textOf(w.url + path)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(text), answer)
}

// await waits until an alert has a state: inactive, pending or firing.
func (w *watcher) await(alert, state string) {
	w.t.Helper()
	process.Await(w.t, process.Patience, func() error {
		var answer struct {
			Data struct {
				Groups []struct {
					Rules []struct{ Name, State, Health string }
				}
			}
		}
		if err := w.get("/api/v1/rules?type=alert", &answer); err != nil {
			return err
		}
		for _, g := range answer.Data.Groups {
			for _, r := range g.Rules {
				if r.Name == alert && r.State == state && r.Health == "ok" {
					return nil
				} else if r.Name == alert {
					return fmt.Errorf("%s is %s (%s), want %s", alert, r.State, r.Health, state)
				}
			}
		}
		return fmt.Errorf("there is no alert %s", alert)
	})
}
