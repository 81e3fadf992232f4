package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// fakeConfig is what a fakeNode does with rules.
type fakeConfig struct {
	applied *weirv1.ApplyRulesRequest // the last one
	text    string                    // of it
	deleted *weirv1.DeleteRateLimitRequest
	answer  *weirv1.ApplyRulesResponse
	watched []*weirv1.WatchRulesResponse

	mu    sync.Mutex
	looks []*weirv1.ListNodesResponse // guarded by mu; one per call, the last one again and again
}

func (f *fakeNode) ApplyRules(_ context.Context, request *weirv1.ApplyRulesRequest) (*weirv1.ApplyRulesResponse, error) {
	f.config.applied = request
	z, err := gzip.NewReader(bytes.NewReader(request.GetRulesGzip()))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return nil, err
	}
	f.config.text = string(text)
	return f.config.answer, f.failure
}

func (f *fakeNode) DeleteRateLimit(_ context.Context, request *weirv1.DeleteRateLimitRequest) (*weirv1.DeleteRateLimitResponse, error) {
	f.config.deleted = request
	return &weirv1.DeleteRateLimitResponse{Revision: 8, RulesHash: "new"}, f.failure
}

func (f *fakeNode) GetRateLimit(_ context.Context, request *weirv1.GetRateLimitRequest) (*weirv1.RateLimit, error) {
	for _, m := range f.config.watched {
		for _, r := range m.GetRateLimits() {
			if r.GetDomain() == cmp.Or(request.GetDomain(), "default") && r.GetId() == request.GetId() {
				return r, nil
			}
		}
	}
	return nil, status.Error(codes.NotFound, "there is no such rule")
}

func (f *fakeNode) WatchRules(request *weirv1.WatchRulesRequest, stream weirv1.RateLimiterConfig_WatchRulesServer) error {
	for _, m := range f.config.watched {
		m = proto.CloneOf(m)
		if request.GetDomain() != "" {
			m.RateLimits = m.GetRateLimits()[:1]
		}
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	return nil
}

// look returns what the nodes say next.
func (c *fakeConfig) look() *weirv1.ListNodesResponse {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.looks[0]
	if len(c.looks) > 1 {
		c.looks = c.looks[1:]
	}
	return next
}

// running is a cluster whose members a, b and so on run these rules.
func running(hashes ...string) *weirv1.ListNodesResponse {
	nodes := &weirv1.ListNodesResponse{Nodes: []*weirv1.Node{{Id: "waits", Address: "w:1", RulesHash: "other"}}}
	for i, r := range hashes {
		id := string(rune('a' + i))
		nodes.Nodes = append(nodes.Nodes, &weirv1.Node{Id: id, Address: id + ":1", Member: true, RulesHash: r})
	}
	return nodes
}

var changedAnswer = &weirv1.ApplyRulesResponse{
	Revision: 7, RulesHash: "new", Changed: true,
	Changes: []*weirv1.RuleChange{
		{Kind: weirv1.RuleChange_KIND_ADDED, Domain: "shop", Id: "a"},
		{Kind: weirv1.RuleChange_KIND_CHANGED, Domain: "shop", Id: "b/c", Fields: []*weirv1.FieldChange{
			{Field: "limits[0].limit", Old: "10", New: "20"}, {Field: "per", New: "[user]"},
		}},
		{Kind: weirv1.RuleChange_KIND_REMOVED, Domain: "shop", Id: "d"},
	},
}

const (
	changesText = `+ shop/a
~ shop/b/c
    limits[0].limit: 10 -> 20
    per: - -> [user]
- shop/d
`
	oneRule = "{domain: d, rules: [{id: r, limits: [{limit: 1, window: 60s}]}]}\n"
	// formatted is oneRule as it is sent.
	formatted = "domain: d\nrules:\n  - id: r\n    limits:\n      - {limit: 1, window: 1m}\n"
)

func TestRulesApply(t *testing.T) {
	unchanged := &weirv1.ApplyRulesResponse{Revision: 7, RulesHash: "new"}
	order := &weirv1.ApplyRulesResponse{Revision: 8, RulesHash: "new", Changed: true}
	many := &weirv1.ApplyRulesResponse{Revision: 8, RulesHash: "new", Changed: true, Changes: changedAnswer.GetChanges()[:1], MoreChanges: 9}
	for _, test := range []struct {
		args   string
		answer *weirv1.ApplyRulesResponse
		looks  []*weirv1.ListNodesResponse
		want   outcome
	}{
		{"", changedAnswer, []*weirv1.ListNodesResponse{running("new", "new", "new")},
			outcome{0, changesText + "stored as revision 7 (new)\nall 3 nodes run it\n", ""}},
		{"", changedAnswer, []*weirv1.ListNodesResponse{running("new", "old"), running("old", "old"), running("new", "new")},
			outcome{0, changesText + "stored as revision 7 (new)\nall 2 nodes run it\n", ""}},
		{"--timeout 200ms", changedAnswer, []*weirv1.ListNodesResponse{running("new", "old", "")},
			outcome{1, changesText + "stored as revision 7 (new)\n",
				"weir: the rules are stored, but after 200ms some nodes do not run them: b at b:1 runs old; c at c:1 is not registered in etcd\n"}},
		{"", unchanged, []*weirv1.ListNodesResponse{running("new")}, outcome{0, "nothing changes\nstill at revision 7 (new)\nthe only node runs it\n", ""}},
		{"", order, []*weirv1.ListNodesResponse{running("new")}, outcome{0, "only the order of the rules changes\nstored as revision 8 (new)\nthe only node runs it\n", ""}},
		{"", many, []*weirv1.ListNodesResponse{running("new")}, outcome{0, "+ shop/a\nand 9 more\nstored as revision 8 (new)\nthe only node runs it\n", ""}},
		{"--json", unchanged, []*weirv1.ListNodesResponse{running("new")},
			outcome{0, `{"revision":"7","rules_hash":"new","changes":[],"more_changes":0,"changed":false}` + "\n", ""}},
		{"--dry-run", changedAnswer, nil, outcome{0, changesText + "not stored: the rules stay at revision 7\n", ""}},
		{"--prune", unchanged, []*weirv1.ListNodesResponse{running("new")}, outcome{0, "nothing changes\nstill at revision 7 (new)\nthe only node runs it\n", ""}},
	} {
		fake := &fakeNode{config: fakeConfig{answer: test.answer, looks: test.looks}}
		args := append(strings.Fields("rules apply -f - --node "+listen(t, fake)), strings.Fields(test.args)...)
		if got := weirWith(t, oneRule, nil, args...); got != test.want {
			t.Errorf("weir rules apply %s:\n got %+v\nwant %+v", test.args, got, test.want)
		}
		applied := fake.config.applied
		if fake.config.text != formatted || applied.GetPrune() != strings.Contains(test.args, "prune") || applied.GetDryRun() != strings.Contains(test.args, "dry") || applied.GetName() != "-" {
			t.Errorf("weir rules apply %s has sent %v\n%s", test.args, applied, fake.config.text)
		}
	}
}

// A directory is one set, and what is wrong in it is told with the names of its
// files, before a node is asked.
func TestRulesApplyDirectory(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("1.yaml", oneRule)
	write("2.yaml", "{domain: e, rules: []}\n")
	fake := &fakeNode{config: fakeConfig{answer: changedAnswer, looks: []*weirv1.ListNodesResponse{running("new")}}}
	address := listen(t, fake)
	if got := weir(t, nil, "rules", "apply", "-f", dir, "--node", address); got.code != 0 {
		t.Errorf("got %+v", got)
	}
	if want := formatted + "---\ndomain: e\nrules: []\n"; fake.config.text != want {
		t.Errorf("sent\n%s", fake.config.text)
	}
	write("2.yaml", "domain: e\nrules:\n- {id: x, limits: [{limit: 1, window: 5}]}\n")
	problem := dir + `/2.yaml:3:39: rule "x": limits[0].window: "5" is not a duration; write a number with a unit, such as 10s, 5m, 1h, 1d` + "\n"
	for _, command := range []string{"apply", "diff"} {
		if got := weir(t, nil, "rules", command, "-f", dir, "--node", "127.0.0.1:1"); got != (outcome{2, "", "weir: " + problem}) {
			t.Errorf("%s: got %+v", command, got)
		}
	}
	if got := weir(t, nil, "rules", "lint", "-f", dir); got != (outcome{1, problem, ""}) {
		t.Errorf("lint: got %+v", got)
	}
}

func TestRulesApplyFails(t *testing.T) {
	fake := &fakeNode{failure: status.Error(codes.Aborted, "another caller has changed the rules"), config: fakeConfig{looks: []*weirv1.ListNodesResponse{running("x")}}}
	address := listen(t, fake)
	want := outcome{2, "", "weir: node " + address + ": another caller has changed the rules\n"}
	for _, args := range []string{"apply -f -", "diff -f -", "delete r"} {
		if got := weirWith(t, oneRule, nil, append(strings.Fields("rules "+args), "--node", address)...); got != want {
			t.Errorf("%s: got %+v, want %+v", args, got, want)
		}
	}
}

func TestRulesDiff(t *testing.T) {
	for _, test := range []struct {
		answer *weirv1.ApplyRulesResponse
		want   outcome
	}{
		{changedAnswer, outcome{1, changesText, ""}},
		{&weirv1.ApplyRulesResponse{}, outcome{0, "nothing changes\n", ""}},
	} {
		fake := &fakeNode{config: fakeConfig{answer: test.answer}}
		if got := weirWith(t, oneRule, nil, "rules", "diff", "-f", "-", "--prune", "--node", listen(t, fake)); got != test.want {
			t.Errorf("got %+v, want %+v", got, test.want)
		}
		if !fake.config.applied.GetDryRun() || !fake.config.applied.GetPrune() {
			t.Errorf("sent %v", fake.config.applied)
		}
	}
}

func TestRulesLint(t *testing.T) {
	bad := "domain: d\nrules:\n- {id: x, limits: [{limit: 1, window: 5}]}\n"
	message := `"5" is not a duration; write a number with a unit, such as 10s, 5m, 1h, 1d`
	for _, test := range []struct {
		stdin, args string
		want        outcome
	}{
		{oneRule, "-f -", outcome{0, "good: 1 rule, 1 domain\n", ""}},
		{"{domain: d, rules: []}\n---\n{domain: e, rules: []}\n", "-f -", outcome{0, "good: 0 rules, 2 domains\n", ""}},
		{oneRule, "-f - --json", outcome{0, `{"rules":1,"problems":[],"more_problems":0}` + "\n", ""}},
		{bad, "-f -", outcome{1, `standard input:3:39: rule "x": limits[0].window: ` + message + "\n", ""}},
		{bad, "-f - --json", outcome{1, `{"rules":0,"problems":[{"file":"standard input","line":3,"column":39,"rule":"x","field":"limits[0].window",` +
			`"message":"` + strings.ReplaceAll(message, `"`, `\"`) + `"}],"more_problems":0}` + "\n", ""}},
		{"", "-f /no/such", outcome{2, "", "weir: /no/such: stat: no such file or directory\n"}},
	} {
		if got := weirWith(t, test.stdin, nil, append([]string{"rules", "lint"}, strings.Fields(test.args)...)...); got != test.want {
			t.Errorf("weir rules lint %s:\n got %+v\nwant %+v", test.args, got, test.want)
		}
	}
}

// watchedRules are two messages of one state.
func watchedRules() []*weirv1.WatchRulesResponse {
	off := false
	return []*weirv1.WatchRulesResponse{
		{Revision: 9, RulesHash: "3f2a", RateLimits: []*weirv1.RateLimit{{Domain: "shop", Id: "a/b", Revision: 3, Rule: &weirv1.Rule{
			When:   map[string]*weirv1.Condition{"method": {AnyOf: []string{"GET", "PUT"}}, "beta": {Absent: true}},
			Per:    []*weirv1.AttributeSet{{Attributes: []string{"user"}}, {Attributes: []string{"ip", "key"}}},
			Limits: []*weirv1.Limit{{Limit: 10, Window: "1s", Burst: 20, Algorithm: "gcra"}, {Limit: 500, Window: "1h"}},
		}}}},
		{Revision: 9, RulesHash: "3f2a", Complete: true, RateLimits: []*weirv1.RateLimit{{Domain: "shop", Id: "c", Revision: 9, Rule: &weirv1.Rule{
			Unlimited: true, Enabled: &off,
		}}}},
	}
}

const exported = `domain: shop
rules:
  - id: a/b
    when:
      beta: {absent: true}
      method: [GET, PUT]
    per: [[user], [ip, key]]
    limits:
      - {limit: 10, window: 1s, burst: 20, algorithm: gcra}
      - {limit: 500, window: 1h}
`

func TestRulesRead(t *testing.T) {
	address := listen(t, &fakeNode{config: fakeConfig{watched: watchedRules()}})
	const list = `
DOMAIN  ID   WHEN                          PER           LIMITS                               ALSO  ENABLED  REVISION
shop    a/b  beta=(absent) method=GET|PUT  user, ip+key  10 per 1s burst 20 gcra, 500 per 1h  -     yes      3
shop    c    -                             -             unlimited                            -     no       9

revision 9 (3f2a), 2 rules
`
	const second = "  - id: c\n    unlimited: true\n    enabled: false\n"
	output := filepath.Join(t.TempDir(), "out.yaml")
	for _, test := range []struct {
		args string
		want outcome
	}{
		{"list", outcome{0, list[1:], ""}},
		{"get a/b --domain shop", outcome{0, exported, ""}},
		{"get a/b", outcome{2, "", "weir: node " + address + ": there is no such rule\n"}},
		{"export", outcome{0, exported + second, ""}},
		{"export -o " + output, outcome{0, "", ""}},
	} {
		if got := weir(t, nil, append(strings.Fields("rules "+test.args), "--node", address)...); got != test.want {
			t.Errorf("weir rules %s:\n got %+v\nwant %+v", test.args, got, test.want)
		}
	}
	if text, err := os.ReadFile(output); err != nil || string(text) != exported+second {
		t.Errorf("exported %s, %v", text, err)
	}
	for args, want := range map[string]string{
		"list --json":                    `"rules_hash":"3f2a"`,
		"list --json --domain shop":      `"complete":true,"descriptor_files":[]}`,
		"get a/b --domain shop --json":   `{"domain":"shop","id":"a/b",`,
		"export --json":                  `"limits":[{"limit":10,"window":"1s","burst":20,`,
		"export --domain shop":           "domain: shop\n",
		"export --json --domain shop":    `"revision":"9"`,
		"export --domain x -o /no/such/": "",
	} {
		got := weir(t, nil, append(strings.Fields("rules "+args), "--node", address)...)
		if !strings.Contains(got.stdout, want) || (got.code == 0) != (want != "") {
			t.Errorf("weir rules %s: %+v", args, got)
		}
	}
}

func TestRulesDelete(t *testing.T) {
	fake := &fakeNode{config: fakeConfig{looks: []*weirv1.ListNodesResponse{running("old", "new"), running("new", "new")}}}
	want := outcome{0, "deleted shop/a/b in revision 8 (new)\nall 2 nodes run it\n", ""}
	if got := weir(t, nil, "rules", "delete", "a/b", "--domain", "shop", "--node", listen(t, fake)); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if d := fake.config.deleted; d.GetDomain() != "shop" || d.GetId() != "a/b" || d.GetRevision() != 0 {
		t.Errorf("sent %v", d)
	}
}

// A rule may be named as diffs show it, by DOMAIN/ID.
func TestRuleNames(t *testing.T) {
	rule := func(domain, id string) *weirv1.RateLimit {
		return &weirv1.RateLimit{Domain: domain, Id: id, Rule: &weirv1.Rule{Limits: []*weirv1.Limit{{Limit: 1, Window: "1s"}}}}
	}
	fake := &fakeNode{config: fakeConfig{
		looks: []*weirv1.ListNodesResponse{running("new")},
		watched: []*weirv1.WatchRulesResponse{{RateLimits: []*weirv1.RateLimit{
			rule("default", "x"), rule("shop", "a/b"), rule("default", "a/c"), rule("a", "c"), rule("default", "d/e"),
		}}},
	}}
	address := listen(t, fake)
	ambiguous := `"a/c" can be the rule default/a/c or the rule a/c; choose one with --domain`
	for _, test := range []struct{ args, domain, id, problem string }{
		{"x", "default", "x", ""},
		{"default/x", "default", "x", ""},
		{"shop/a/b", "shop", "a/b", ""},
		{"a/b --domain shop", "shop", "a/b", ""},
		{"d/e", "default", "d/e", ""},
		{"default/d/e", "default", "d/e", ""},
		{"a/c", "", "", ambiguous},
		{"a/c --domain default", "default", "a/c", ""},
		{"c --domain a", "a", "c", ""},
		{"shop/x", "", "", "there is no such rule"},
	} {
		got := weir(t, nil, append(strings.Fields("rules get --json --node "+address), strings.Fields(test.args)...)...)
		want := fmt.Sprintf(`{"domain":%q,"id":%q,`, test.domain, test.id)
		if test.problem != "" && (got.code != 2 || !strings.Contains(got.stderr, test.problem)) || test.problem == "" && !strings.HasPrefix(got.stdout, want) {
			t.Errorf("weir rules get %s: %+v, want %s%s", test.args, got, want, test.problem)
		}
		fake.config.deleted, fake.reset = nil, nil
		got = weir(t, nil, append(strings.Fields("rules delete --node "+address), strings.Fields(test.args)...)...)
		if d := fake.config.deleted; test.problem == ambiguous != (d == nil) || test.problem == "" && (cmp.Or(d.GetDomain(), "default") != test.domain || d.GetId() != test.id) {
			t.Errorf("weir rules delete %s: %+v, sent %v", test.args, got, d)
		}
		got = weir(t, nil, append(strings.Fields("reset --node "+address+" --rule"), strings.Fields(test.args)...)...)
		if r := fake.reset; test.problem == ambiguous != (r == nil) || test.problem == "" && (cmp.Or(r.GetDomain(), "default") != test.domain || r.GetRuleId() != test.id) {
			t.Errorf("weir reset --rule %s: %+v, sent %v", test.args, got, r)
		}
	}
}

// Several files are one set, also with standard input among them.
func TestRulesOfSeveralFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const rule = "{domain: d, rules: [{id: %s, limits: [{limit: 1, window: 1m}]}]}\n"
	a, b, bad := write("a.yaml", fmt.Sprintf(rule, "a")), write("b.yaml", fmt.Sprintf(rule, "b")), write("bad.yaml", fmt.Sprintf(rule, "a"))
	fake := &fakeNode{config: fakeConfig{answer: changedAnswer, looks: []*weirv1.ListNodesResponse{running("new")}}}
	address := listen(t, fake)
	all := "domain: d\nrules:\n  - id: a\n    limits:\n      - {limit: 1, window: 1m}\n  - id: r\n    limits:\n      - {limit: 1, window: 1m}\n  - id: b\n    limits:\n      - {limit: 1, window: 1m}\n"
	for _, command := range []string{"apply", "diff"} {
		fake.config.text = ""
		got := weirWith(t, oneRule, nil, "rules", command, "--node", address, "-f", a, "-f", "-", "--file", b)
		if got.stderr != "" || fake.config.text != all || fake.config.applied.GetName() != "a.yaml and 2 more" {
			t.Errorf("%s: %+v, sent as %s\n%s", command, got, fake.config.applied.GetName(), fake.config.text)
		}
	}
	for _, test := range []struct {
		args []string
		want outcome
	}{
		{[]string{"-f", a, "-f", b}, outcome{0, "good: 2 rules, 1 domain\n", ""}},
		{[]string{"-f", a, "-f", bad}, outcome{1, bad + `:1:21: rule "a": domain "d" has a rule of this id already, at ` + a + ":1\n", ""}},
		{[]string{"-f", a, "-f", a}, outcome{2, "", "weir: --file: " + a + " is given twice\nRun \"weir rules lint --help\" for how to use it.\n"}},
		{[]string{"-f", "-", "-f", "-"}, outcome{2, "", "weir: --file: - is given twice\nRun \"weir rules lint --help\" for how to use it.\n"}},
		{[]string{"-f", a, "-f", "/no/such"}, outcome{2, "", "weir: /no/such: stat: no such file or directory\n"}},
		{[]string{"-f", a, "-f", ""}, outcome{2, "", "weir: --file: \"\" is not the name of a file; give a file, a directory, or - for standard input\nRun \"weir rules lint --help\" for how to use it.\n"}},
	} {
		if got := weirWith(t, oneRule, nil, append([]string{"rules", "lint"}, test.args...)...); got != test.want {
			t.Errorf("lint %v:\n got %+v\nwant %+v", test.args, got, test.want)
		}
	}
}

// TestLintForNewcomers: what is easily written and never meant is refused, with its place
// and what to write instead.
func TestLintForNewcomers(t *testing.T) {
	const rule = "domain: d\nrules:\n- id: r\n  limits: [{limit: 1, window: 1s}]\n"
	for line, want := range map[string]string{
		"  per: [identifier]":               `5:9: rule "r": per[0]: "identifier" is a field of requests, not an attribute`,
		"  when: {identifier_type: user}":   `5:10: rule "r": when: "identifier_type" is a field of requests, not an attribute`,
		"  when: {ip: 10.0.0.1-10.0.0.9}":   `5:14: rule "r": when.ip: "10.0.0.1-10.0.0.9" is not an IP address; write an address, a block such as 10.0.0.0/8, or a prefix`,
		"  when: {ip: [localhost]}":         `5:15: rule "r": when.ip[0]: "localhost" is not an IP address`,
		"  when:\n    endpoint: *":          `6:15: not valid YAML: a value cannot begin with *; put it in quotes: "*"`,
		"\twhen: {endpoint: /a}":            `5:1: not valid YAML: a tab cannot stand here; write spaces instead`,
		"  when:\n  \tendpoint: /a":         `6:3: not valid YAML: a tab cannot stand here; write spaces instead`,
		"  when: {path: \"re:\\d+\"}":       `5:20: not valid YAML: "\" begins an escape within double quotes`,
		"  when: {method: GET, user: [bob}": `5:29: not valid YAML: the list that begins here lacks a comma or its ]`,
	} {
		got := weirWith(t, rule+line+"\n", nil, "rules", "lint", "-f", "-")
		if got.code != 1 || !strings.HasPrefix(got.stdout, "standard input:"+want) {
			t.Errorf("%s\n got %+v\nwant %s", line, got, want)
		}
	}
}

func TestFormatAlso(t *testing.T) {
	none := uint32(0)
	for want, rule := range map[string]*weirv1.Rule{
		"":           {},
		"enforce 0%": {Enforce: &none},
		"soft +10%; max delay 2s; cost size": {
			Mode: &weirv1.Mode{Soft: &weirv1.SoftMode{Over: "10%"}}, MaxDelay: "2s", Cost: "size",
		},
		"on failure local; durability strict": {OnFailure: "local", Durability: "strict"},
		"elastic to 150% of org; on failure deny; replaces a, b": {
			Mode: &weirv1.Mode{Elastic: &weirv1.ElasticMode{Parent: "org", UpTo: "150%"}}, OnFailure: "deny", Replaces: []string{"a", "b"},
		},
	} {
		if got := formatAlso(rule); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
