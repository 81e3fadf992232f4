package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirlimit/weir/test/process"
)

// Programs that the pages for operators run.
var operators = []string{"weir", "curl", "etcdctl"}

// inList matches the indent of a command in a list.
var inList = regexp.MustCompile(`(?m)^ {5,}(weir|curl|etcdctl) `)

// site is what an operator's page is about: an etcd of its own program, and three nodes. The page calls them etcd-1 and weir-1 to weir-3.
// A comment of a page, as <!-- run: scene kill weir-3 -->, has what happens between its commands.
type site struct {
	*desk
	program  string // etcd
	endpoint string
	peer     string
	data     string // directory of etcd
	restored string // another one
	etcd     *exec.Cmd
	nodes    []*process.Node // weir-1 first
}

func newSite(t *testing.T, document string) *site {
	t.Helper()
	s := &site{program: findEtcd(t, "etcd"), data: t.TempDir(), restored: filepath.Join(t.TempDir(), "restored")}
	s.desk = newDesk(t, document)
	home := t.TempDir() // -f on a page replaces what other documents have curl do with an error
	if err := os.WriteFile(filepath.Join(home, ".curlrc"), []byte("silent\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.env = append(s.env, "CURL_HOME="+home, "PATH="+filepath.Dir(process.Binary(t))+":"+filepath.Dir(findEtcd(t, "etcdctl"))+":"+os.Getenv("PATH"))
	s.endpoint, s.peer = freeAddress(t), "http://"+freeAddress(t)
	s.startEtcd()
	t.Cleanup(func() { s.stopEtcd() })
	for i := range 3 {
		s.nodes = append(s.nodes, process.Start(t, "--id", fmt.Sprint("weir-", i+1), "--etcd", s.endpoint, "--peer-timeout", "4s"))
	}
	process.AwaitMembers(t, process.Patience, s.nodes...)
	return s
}

// startEtcd starts etcd on its directory.
func (s *site) startEtcd() {
	s.t.Helper()
	var log bytes.Buffer
	s.etcd = exec.Command(s.program, "--name", "etcd-1", "--data-dir", s.data,
		"--listen-client-urls", "http://"+s.endpoint, "--advertise-client-urls", "http://"+s.endpoint,
		"--listen-peer-urls", s.peer, "--initial-advertise-peer-urls", s.peer, "--initial-cluster", "etcd-1="+s.peer)
	s.etcd.Stdout, s.etcd.Stderr = &log, &log
	if err := s.etcd.Start(); err != nil {
		s.t.Fatal(err)
	}
	process.Await(s.t, process.Patience, func() error {
		if out, code := s.run("ETCDCTL_API=3 etcdctl --endpoints " + s.endpoint + " endpoint health"); code != 0 {
			return fmt.Errorf("etcd is not healthy: %s", out)
		}
		return nil
	})
}

func (s *site) stopEtcd() {
	_ = s.etcd.Process.Kill() // it may have ended
	_ = s.etcd.Wait()
}

// here returns a command with the addresses and directories of this test.
func (s *site) here(command string) string {
	members := "etcd-1=http://etcd-1:2380,etcd-2=http://etcd-2:2380,etcd-3=http://etcd-3:2380" // this test has the first one only
	replaced := []string{
		"etcd-1:2379,etcd-2:2379,etcd-3:2379", s.endpoint, "etcd-1:2379", s.endpoint, members, "etcd-1=" + s.peer, "http://etcd-1:2380", s.peer,
		"/var/lib/etcd-restored", s.restored,
	}
	for _, n := range s.nodes {
		replaced = append(replaced, n.ID+":9090", n.GRPC, n.ID+":8080", n.HTTP)
	}
	return strings.NewReplacer(replaced...).Replace(command)
}

// play does a step of the page.
func (s *site) play(step step) {
	s.t.Helper()
	if scene, ok := strings.CutPrefix(step.command, "scene "); ok {
		s.scene(scene)
		return
	}
	command := s.here(step.command)
	process.Await(s.t, process.Patience, func() error { // what it asks for may take a moment
		out, code := s.run(command)
		if code != 0 {
			return fmt.Errorf("%s:%d: %s ends with code %d:\n%s", s.document, step.line, command, code, out)
		}
		if step.output != nil && !strings.Contains(abstract(out), abstract(*step.output)) {
			return fmt.Errorf("%s:%d: %s prints\n%s\nand not\n%s", s.document, step.line, command, out, *step.output)
		}
		return nil
	})
}

// scene lets something happen, or waits for it.
func (s *site) scene(what string) {
	s.t.Helper()
	verb, object, _ := strings.Cut(what, " ")
	node := s.nodes[0]
	for _, n := range s.nodes {
		if n.ID == object {
			node = n
		}
	}
	switch {
	case what == "kill etcd":
		s.stopEtcd()
	case what == "start etcd":
		s.startEtcd()
	case what == "start etcd restored":
		s.data = s.restored
		s.startEtcd()
	case verb == "health": // has these words
		s.awaitHealth(object, true)
	case verb == "healthy":
		s.awaitHealth(object, false)
	case verb == "kill":
		node.Kill()
	case verb == "restart":
		node.Restart()
	case what == "members":
		process.AwaitMembers(s.t, process.Patience, s.nodes...)
	default:
		s.t.Fatalf("%s: no scene %q", s.document, what)
	}
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

// Every command of the pages for operators does its work on a real cluster, at the moment that the page is about.
func TestOperatorsPages(t *testing.T) {
	for _, name := range []string{"etcd", "upgrades", "disaster", "faq"} {
		t.Run(name, func(t *testing.T) {
			process.NotInBrief(t)
			document := "docs/operations/" + name + ".md"
			text, err := os.ReadFile("../../" + document)
			if err != nil {
				t.Fatal(err)
			}
			s, played := newSite(t, document), 0
			for _, step := range steps(inList.ReplaceAllString(string(text), "    $1 "), operators) {
				s.play(step)
				played++
			}
			if played == 0 {
				t.Errorf("%s has no commands", document)
			}
		})
	}
}
