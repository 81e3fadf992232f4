package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cespare/xxhash/v2"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/internal/testform"

	"github.com/weirlimit/weir/test/pageplayer"
	"github.com/weirlimit/weir/test/process"
)

// Programs that the pages for operators run.
var operators = []string{"weir", "curl", "etcdctl", "etcdutl"}

// inList matches the indent of a command in a list.
var inList = regexp.MustCompile(`(?m)^ {5,}(weir|curl|etcdctl|etcdutl) `)

// realEtcd is an etcd of its own program, without TLS.
type realEtcd struct {
	*etcdProgram
	ctl string // the program etcdctl
}

// startRealEtcd starts one on an empty directory. It is killed when the test ends.
func startRealEtcd(t *testing.T) *realEtcd {
	t.Helper()
	e := &realEtcd{newEtcdProgram(t), findEtcd(t, "etcdctl")}
	e.start()
	return e
}

// start starts it on its directory, and waits until it answers.
func (e *realEtcd) start() {
	e.t.Helper()
	e.etcdProgram.start()
	e.await(func() error { return e.control("endpoint", "health") })
}

// wipe has it begin without data.
func (e *realEtcd) wipe() {
	e.t.Helper()
	e.kill()
	e.data = e.t.TempDir()
	e.start()
}

// restore has it begin with the data of a snapshot, as docs/operations/etcd.md has it.
func (e *realEtcd) restore(snapshot string) {
	e.t.Helper()
	e.kill()
	e.data = filepath.Join(e.t.TempDir(), "restored")
	restore := exec.CommandContext(e.t.Context(), findEtcd(e.t, "etcdutl"), "snapshot", "restore", snapshot, "--data-dir", e.data, "--name", "etcd-1",
		"--initial-cluster", "etcd-1="+e.peer, "--initial-advertise-peer-urls", e.peer)
	if out, err := restore.CombinedOutput(); err != nil {
		e.t.Fatalf("%v: %v\n%s", restore.Args, err, out)
	}
	e.start()
}

// control runs etcdctl.
func (e *realEtcd) control(args ...string) error {
	cmd := exec.CommandContext(e.t.Context(), e.ctl, append([]string{"--endpoints", e.endpoint}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", cmd.Args, err, out)
	}
	return nil
}

// site is what an operator's page is about: an etcd of its own program, and three nodes. The page calls them etcd-1 and weir-1 to weir-3.
// A comment of a page, as <!-- run: scene kill weir-3 -->, has what happens between its commands.
type site struct {
	*pageplayer.Player
	t        *testing.T
	etcd     *realEtcd
	restored string                // directory for the data of a backup
	nodes    []*process.Node       // weir-1 first
	dirs     []string              // of their data
	counts   atomic.Pointer[tally] // of the callers, if there are
}

func newSite(t *testing.T, document string, args ...string) *site {
	t.Helper()
	s := &site{t: t, etcd: startRealEtcd(t), restored: filepath.Join(t.TempDir(), "restored")}
	s.Player = pageplayer.New(t, document)
	home := t.TempDir() // fail agrees with -f on a page, and the fail-with-body of other documents does not
	if err := os.WriteFile(filepath.Join(home, ".curlrc"), []byte("silent\nshow-error\nfail\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Env = append(s.Env, "CURL_HOME="+home, "PATH="+filepath.Dir(process.Binary(t))+":"+filepath.Dir(s.etcd.ctl)+":"+os.Getenv("PATH"))
	for i := range 3 {
		s.dirs = append(s.dirs, t.TempDir())
		args := append([]string{"--id", fmt.Sprint("weir-", i+1), "--etcd", s.etcd.endpoint, "--data-dir", s.dirs[i], "--peer-timeout", "4s", "--snapshot-every", "1s"}, args...)
		s.nodes = append(s.nodes, process.Start(t, args...))
	}
	process.AwaitMembers(t, process.Patience, s.nodes...)
	return s
}

// here returns a command with the addresses and directories of this test.
func (s *site) here(command string) string {
	members := "etcd-1=http://etcd-1:2380,etcd-2=http://etcd-2:2380,etcd-3=http://etcd-3:2380" // this test has the first one only
	replaced := []string{
		"etcd-1:2379,etcd-2:2379,etcd-3:2379", s.etcd.endpoint, "etcd-1:2379", s.etcd.endpoint, members, "etcd-1=" + s.etcd.peer,
		"http://etcd-1:2380", s.etcd.peer,
		"/var/lib/etcd-restored", s.restored,
	}
	for _, n := range s.nodes {
		replaced = append(replaced, n.ID+":9090", n.GRPC, n.ID+":8080", n.HTTP)
	}
	return strings.NewReplacer(replaced...).Replace(command)
}

// play does a step of the page, a command in a subtest of its own. It is false if the command failed, and those after it may need what
// that should have done.
func (s *site) play(step pageplayer.Step) (ok bool) {
	s.t.Helper()
	if scene, ok := strings.CutPrefix(step.Command, "scene "); ok {
		s.scene(scene)
		return true
	}
	return s.t.Run(fmt.Sprintf("line %d: %s", step.Line, step.Command), func(t *testing.T) { s.run(t, step) })
}

// run does a command of the page.
func (s *site) run(t *testing.T, step pageplayer.Step) {
	t.Helper()
	command := s.here(step.Command)
	process.Await(t, process.Patience, func() error { // what it asks for may take a moment
		out, code := s.Run(command)
		if code != 0 {
			return fmt.Errorf("%s:%d: %s ends with code %d:\n%s", s.Document, step.Line, command, code, out)
		}
		if step.Output != nil && !strings.Contains(pageplayer.Abstract(out), pageplayer.Abstract(*step.Output)) {
			return fmt.Errorf("%s:%d: %s prints\n%s\nand not\n%s", s.Document, step.Line, command, out, *step.Output)
		}
		return nil
	})
}

// scene lets something happen, or waits for it.
func (s *site) scene(what string) {
	s.t.Helper()
	verb, object, _ := strings.Cut(what, " ")
	var nodes []*process.Node // that it is about
	for _, n := range s.nodes {
		if object == "nodes" || slices.Contains(strings.Fields(object), n.ID) {
			nodes = append(nodes, n)
		}
	}
	switch {
	case what == "kill etcd":
		s.etcd.kill()
	case what == "start etcd":
		s.etcd.start()
	case what == "start etcd restored":
		s.etcd.data = s.restored
		s.etcd.start()
	case what == "wipe etcd":
		s.etcd.wipe()
	case verb == "health": // has these words
		s.awaitHealth(object, true)
	case verb == "healthy":
		s.awaitHealth(object, false)
	case what == "load":
		if out, code := s.Run(s.here("weir rules apply --node weir-1:9090 -f ") + writeRules(s.t, rulesPerYear(1_000_000))); code != 0 {
			s.t.Fatal(out)
		}
		process.Await(s.t, process.Patience, func() error { // until all nodes have them
			var errs []error
			for _, n := range s.nodes {
				resp, err := n.Client.Check(s.t.Context(), user("first"))
				if errs = append(errs, err); resp.GetSource() == weirv1.Source_SOURCE_NO_RULE {
					errs = append(errs, fmt.Errorf("%s has no rules yet", n.ID))
				}
			}
			return errors.Join(errs...)
		})
		s.counts.Store(new(tally))
		s.t.Cleanup(load(s.nodes[:2], &s.counts))
	case what == "no errors": // since the load began, or since the last time
		counts := newTally(&s.counts)
		counts.noErrors(s.t)
		if counts.owner.Load() == 0 {
			s.t.Errorf("%s: no check was decided by its owner", s.Document)
		}
	case what == "older views": // while no node runs
		s.ageViews()
	case what == "members":
		process.AwaitMembers(s.t, process.Patience, s.nodes...)
	case len(nodes) == 0:
		s.t.Fatalf("%s: no scene %q", s.Document, what)
	case verb == "kill":
		for _, n := range nodes {
			n.Kill()
		}
	case verb == "stop":
		s.each(nodes, func(n *process.Node) {
			n.Signal(syscall.SIGTERM)
			if code := n.Wait(process.Patience); code != 0 {
				s.t.Errorf("%s: %s ended with %d", s.Document, n.ID, code)
			}
		})
	case verb == "restart":
		s.each(nodes, (*process.Node).Restart)
	default:
		s.t.Fatalf("%s: no scene %q", s.Document, what)
	}
}

// viewVersion is the version of the format of a stored view. The first format had none.
var viewVersion = regexp.MustCompile(`{"version":\d+,`)

// ageViews has the stored view, and those that nodes keep in their directories, be as an older version has written them.
func (s *site) ageViews() {
	s.t.Helper()
	const key = "/weir/default/view"
	out, err := exec.CommandContext(s.t.Context(), s.etcd.ctl, "--endpoints", s.etcd.endpoint, "get", "--print-value-only", key).Output()
	if err != nil || !viewVersion.Match(out) {
		s.t.Fatalf("the stored view is %.100q, %v", out, err)
	}
	if err := s.etcd.control("put", key, viewVersion.ReplaceAllString(string(out), "{")); err != nil {
		s.t.Fatal(err)
	}
	for _, dir := range s.dirs {
		path := filepath.Join(dir, "cluster-state")
		text, err := os.ReadFile(path)
		head, state, _ := strings.Cut(string(text), "\n")
		fields := strings.Fields(head) // the last one is the checksum
		if err != nil || len(fields) != 4 || !viewVersion.MatchString(state) {
			s.t.Fatalf("%s begins with %q, %v", path, head, err)
		}
		state = viewVersion.ReplaceAllString(state, "{")
		aged := fmt.Sprintf("%s %016x\n%s", strings.Join(fields[:3], " "), xxhash.Sum64String(state), state)
		if err := os.WriteFile(path, []byte(aged), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
}

// each does the same with these nodes at once.
func (s *site) each(nodes []*process.Node, do func(*process.Node)) {
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(func() { do(n) })
	}
	wg.Wait()
}

// awaitHealth waits until the first node's health has these words among its reasons, or has not.
func (s *site) awaitHealth(words string, want bool) {
	s.t.Helper()
	process.Await(s.t, process.Patience, func() error {
		if text := reasons(s.nodes[0]); strings.Contains(text, words) != want {
			return fmt.Errorf("health says %q; %q in it should be %v", text, words, want)
		}
		return nil
	})
}

// elsewhere are pages for operators whose commands another test runs, with how many these are.
var elsewhere = map[string]int{"alerts.md": 0, "sizing.md": 2} // TestPageOnSizingShowsRealOutput

// stepsOf returns the commands of a page for operators, also those in lists.
func stepsOf(page string) []pageplayer.Step {
	return pageplayer.Steps(inList.ReplaceAllString(page, "    $1 "), operators)
}

// allPlayed fails the test if a page has a command that stepsOf leaves out, unless it is one of these programs, which another test runs.
func allPlayed(t *testing.T, document, page string, others []string) {
	t.Helper()
	for _, left := range pageplayer.Unplayed(inList.ReplaceAllString(page, "    $1 "), operators) {
		program, _, _ := strings.Cut(left.Command, " ")
		if slices.Contains(others, program) && strings.Contains(page, "\n"+left.Command+"\n") { // that test reads lines without an indent
			continue
		}
		t.Errorf("%s:%d: no test runs %q", document, left.Line, left.Command)
	}
}

// Every command of the pages for operators does its work on a real cluster, at the moment that the page is about.
func TestOperatorsPages(t *testing.T) {
	pages, err := filepath.Glob("../../docs/operations/*.md")
	if err != nil || len(pages) < 7 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range pages {
		name := filepath.Base(page)
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		allPlayed(t, "docs/operations/"+name, string(text), nil)
		if want, ok := elsewhere[name]; ok {
			if got := len(pageplayer.Steps(string(text), operators)); got != want {
				t.Errorf("%s has %d commands, and %d are run", name, got, want)
			}
			continue
		}
		t.Run(name, func(t *testing.T) {
			testform.NotInBrief(t)
			t.Parallel()
			s, played := newSite(t, "docs/operations/"+name), 0
			for _, step := range stepsOf(string(text)) {
				if !s.play(step) {
					return
				}
				played++
			}
			if played == 0 {
				t.Errorf("%s has no commands", name)
			}
		})
	}
}

// inSentence matches a command within a sentence.
var inSentence = regexp.MustCompile("`((?:weir|curl|etcdctl|etcdutl)\\s[^`]+)`")

// etcdctlName matches the name of a command of etcdctl, without arguments.
var etcdctlName = regexp.MustCompile(`^etcdctl ([a-z]+|snapshot (status|restore))$`)

// A command within a sentence is the name of one, as in the reference, or a block has it with these arguments, and an id in the place of ID: blocks are
// run. It is one of the same page, or of any page in the sentence of a runbook.
func TestCommandsInSentences(t *testing.T) {
	t.Parallel()
	reference, err := os.ReadFile("../../docs/reference/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	names := 0
	var all []pageplayer.Step
	for _, pattern := range []string{"../../docs/operations/*.md", "../../docs/operations/alerts/*.md"} {
		pages, err := filepath.Glob(pattern)
		if err != nil || len(pages) == 0 {
			t.Fatalf("%d pages, %v", len(pages), err)
		}
		texts := make(map[string]string)
		for _, page := range pages {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			texts[page] = string(text)
			all = append(all, stepsOf(texts[page])...)
		}
		for page, text := range texts {
			steps := stepsOf(text)
			if strings.Contains(pattern, "alerts") {
				steps = all
			}
			for _, found := range inSentence.FindAllStringSubmatch(text, -1) {
				command := strings.Join(strings.Fields(found[1]), " ")
				if etcdctlName.MatchString(command) || strings.Contains(string(reference), "\n## "+command+"\n") {
					names++
					continue
				}
				if !slices.ContainsFunc(steps, func(s pageplayer.Step) bool { return isRunBy(command, s.Command) }) {
					t.Errorf("%s has `%s` within a sentence, which no test runs: make it a block", filepath.Base(page), command)
				}
			}
		}
	}
	if names == 0 {
		t.Error("no page names a command")
	}
}

// isRunBy reports whether a step has all words of a command, in order, and any one that is no flag in the place of ID.
func isRunBy(command, step string) bool {
	words := strings.Fields(command)
	for word := range strings.FieldsSeq(step) {
		if len(words) > 0 && (words[0] == word || words[0] == "ID" && !strings.HasPrefix(word, "-")) {
			words = words[1:]
		}
	}
	return len(words) == 0
}
