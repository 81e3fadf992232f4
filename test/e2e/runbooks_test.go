package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/pageplayer"
)

// shBlock matches the commands of a runbook.
var shBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// Every command of the runbooks does its work on a real cluster, except those that look at the machine: test/install runs these. Comments in a page bring
// about what its alert is about, where the commands work then too.
func TestRunbooks(t *testing.T) {
	testform.NotInBrief(t)
	t.Parallel()
	pages, err := filepath.Glob("../../docs/operations/alerts/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	s := newSite(t, "docs/operations/alerts")
	s.Env = append(s.Env, "ETCDCTL_ENDPOINTS="+s.etcd.endpoint)
	here := strings.NewReplacer("http://HOST:PORT", "http://"+s.nodes[0].HTTP, "HOST:PORT", s.nodes[0].GRPC, "FILE", writeRules(t, lastingRule))
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		s.Document = "docs/operations/alerts/" + filepath.Base(page)
		played := make(map[string]bool)
		for _, step := range stepsOf(string(text)) {
			played[step.Command] = true
			step.Command = here.Replace(step.Command)
			s.play(step)
		}
		for _, block := range shBlock.FindAllStringSubmatch(string(text), -1) {
			for line := range strings.Lines(block[1]) {
				program, _, _ := strings.Cut(line, " ")
				if command := strings.TrimSpace(line); !played[command] && !slices.Contains(pageplayer.MachinePrograms, program) {
					t.Errorf("%s: %q was not run", s.Document, command)
				}
			}
		}
	}
}
