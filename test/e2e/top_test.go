package e2e

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/test/process"
)

const topRules = `domain: default
rules:
  - {id: login, when: {endpoint: /login}, per: [user], limits: [{limit: 5, window: 365d}]}
  - {id: trial, when: {endpoint: /trial}, per: [user], limits: [{limit: 1, window: 365d}], enforce: 0}
`

// topOf asks a node for the lists of the cluster by the command.
func topOf(t *testing.T, n *process.Node, args ...string) (resp *weirv1.ListTopKeysResponse, ok bool) {
	t.Helper()
	out, ok := runWeir(t, append([]string{"top", "--json", "--window", "1h", "--node", n.GRPC}, args...)...)
	document, _, _ := strings.Cut(out, "\nweir: ") // the error of an incomplete list
	resp = new(weirv1.ListTopKeysResponse)
	if err := protojson.Unmarshal([]byte(document), resp); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return resp, ok
}

// countsOf returns rule, value and count of each key, sorted.
func countsOf(resp *weirv1.ListTopKeysResponse) string {
	var lines []string
	for _, k := range resp.GetKeys() {
		line := k.GetRuleId()
		for _, e := range k.GetEntries() {
			line += fmt.Sprintf(" %q", e.GetValue())
		}
		lines = append(lines, fmt.Sprintf("%s %d", line, k.GetCount()))
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

// TestTopKeysOfACluster asks three nodes and has each of them list the keys of all: each check
// is in the lists once. A node that does not answer is named.
func TestTopKeysOfACluster(t *testing.T) {
	t.Parallel()
	_, nodes := startThree(t, topRules, "--peer-timeout", "4s")
	const hostile = "\x1b[2J\nmallory"
	denied := make(map[string]int)
	asked := make(map[string]int)
	ask := func(n *process.Node, name, endpoint string) {
		t.Helper()
		resp := decide(t, n, &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: name, Endpoint: endpoint})
		asked[name]++
		if !resp.GetAllowed() {
			denied[name]++
		}
	}
	for i := range 12 {
		ask(nodes[i%3], "alice", "/login")
		ask(nodes[i%2], hostile, "/login")
		if i < 4 {
			ask(nodes[i%3], "bob", "/login")
			ask(nodes[i%3], "carol", "/trial")
		}
	}
	if denied["alice"] != 7 || denied[hostile] != 7 || denied["bob"] != 0 || denied["carol"] != 0 {
		t.Fatalf("denied: %v", denied)
	}
	for _, n := range nodes {
		for _, tc := range []struct{ by, want string }{
			{"denied", fmt.Sprintf(`login "alice" 7, login %q 7`, hostile)},
			{"would_deny", `trial "carol" 3`},
		} {
			resp, ok := topOf(t, n, "--by", tc.by)
			got := strings.Split(countsOf(resp), ", ")
			want := strings.Split(tc.want, ", ")
			slices.Sort(want)
			if !ok || !slices.Equal(got, want) || len(resp.GetNodes()) != 3 || len(resp.GetUnanswered()) != 0 || resp.GetUnlisted() != 0 {
				t.Errorf("by %s: %v", tc.by, resp)
			}
		}
		resp, ok := topOf(t, n, "--rule", "login", "-n", "2")
		if !ok || len(resp.GetKeys()) != 2 || resp.GetKeys()[0].GetCount() < 12 || resp.GetUnlisted() < 4 {
			t.Errorf("checks: %v", resp)
		}
	}

	out, ok := runWeir(t, "top", "--by", "denied", "--window", "1h", "--node", nodes[1].GRPC)
	if !ok || !strings.Contains(out, "login  user=alice") || !strings.Contains(out, `user="\x1b[2J\nmallory"`) || strings.Contains(out, "\x1b") {
		t.Errorf("%v: %s", ok, out)
	}

	nodes[2].Signal(syscall.SIGSTOP)
	defer nodes[2].Signal(syscall.SIGCONT)
	resp, ok := topOf(t, nodes[0], "--by", "would_deny")
	if ok || len(resp.GetNodes()) != 2 || len(resp.GetUnanswered()) != 1 || resp.GetUnanswered()[0].GetReason() != "does not answer within 500ms" {
		t.Errorf("with a stopped node: %v", resp)
	}
}
