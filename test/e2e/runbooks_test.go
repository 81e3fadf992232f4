package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/pageplayer"
)

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
		allPlayed(t, s.Document, string(text), pageplayer.MachinePrograms)
		for _, step := range stepsOf(string(text)) {
			step.Command = here.Replace(step.Command)
			s.play(step)
		}
	}
}
