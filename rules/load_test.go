package rules

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/algorithms"
)

const oneLimit = "limits: [{limit: 1, window: 1s}]"

// write makes files of a directory; a name that ends in "/" is a directory, and a
// text that begins with "->" a symbolic link.
func write(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path, text := filepath.Join(dir, name), files[name]
		var err error
		if target, ok := strings.CutPrefix(text, "->"); ok {
			err = os.Symlink(target, path)
		} else if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(path, 0o755)
		} else {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// ruleNames lists domain/id of a set's rules.
func ruleNames(s *Set) string {
	var names []string
	for r := range s.Rules() {
		names = append(names, r.Domain+"/"+r.ID)
	}
	return strings.Join(names, " ")
}

func TestParseWholeRule(t *testing.T) {
	set := parse(t, `
domain: shop
rules:
  - id: team/posts.v1_x-y
    when:
      status: "404"
      path: re:/v[12]/.*
      method: [PUT, POST]
      debug: {absent: true}
    per: [user, ip]
    limits:
      - {limit: 10, window: 1s}
      - {limit: 2147483648, window: 366d, algorithm: sliding_window}
    enabled: false
  - {id: least, when: {}, per: [], limits: [{limit: 0, window: 10ms}]}
`)
	rules := slices.Collect(set.Rules())
	if set.Len() != 2 || len(rules) != 2 {
		t.Fatalf("%d rules, Len %d, want 2", len(rules), set.Len())
	}
	var when []string
	for _, c := range rules[0].When {
		when = append(when, fmt.Sprint(c.Attribute, c.AnyOf, c.Absent))
	}
	for _, c := range []struct{ what, got, want string }{
		{"names", ruleNames(set), "shop/team/posts.v1_x-y shop/least"},
		{"when", strings.Join(when, " "), "debug[] true method[POST PUT] false status[404] false path[re:/v[12]/.*] false"},
		{"per", fmt.Sprint(rules[0].Per), "[[ip user]]"},
		{"enabled", fmt.Sprint(rules[0].Enabled, rules[1].Enabled), "false true"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.what, c.got, c.want)
		}
	}
	limits := []algorithms.Limit{
		{Algorithm: algorithms.SlidingWindow, Limit: 10, Window: 1e9},
		{Algorithm: algorithms.SlidingWindow, Limit: algorithms.MaxLimit, Window: int64(algorithms.MaxWindow)},
	}
	if !slices.Equal(rules[0].Limits, limits) {
		t.Errorf("limits are %v, want %v", rules[0].Limits, limits)
	}
}

func TestLoad(t *testing.T) {
	rule := func(domain, id string) string {
		return fmt.Sprintf("domain: %s\nrules: [{id: %s, %s}]\n", domain, id, oneLimit)
	}
	for _, c := range []struct {
		what  string
		files map[string]string
		path  string // below the directory
		want  string // rules, or problems with DIR for the directory
	}{
		{"a file", map[string]string{"r.conf": rule("d", "a")}, "r.conf", "d/a"},
		{"a directory", map[string]string{"b.yml": rule("d", "b"), "a.yaml": rule("d", "a"), "c.txt": "x", "d.yaml.bak": "x"}, "", "d/a d/b"},
		{"several documents", map[string]string{"a.yaml": rule("d", "a") + "---\n" + rule("e", "a") + "---\n" + rule("d", "b")}, "", "d/a e/a d/b"},
		{"no rules", map[string]string{"a.yaml": "domain: d\nrules: []\n"}, "", ""},
		{"JSON", map[string]string{"a.yaml": `{"domain": "d", "rules": [{"id": "a", "limits": [{"limit": 1, "window": "1s"}]}]}`}, "", "d/a"},
		{"CRLF and a mark", map[string]string{"a.yaml": "\ufeff" + strings.ReplaceAll(rule("d", "a"), "\n", "\r\n")}, "", "d/a"},
		{"a directory below", map[string]string{"a.yaml": rule("d", "a"), "sub/": "", "sub/b.yaml": "x"}, "", "d/a"},
		{"a ConfigMap", map[string]string{"..1/": "", "..1/a.yaml": rule("d", "a"), "..data": "->..1", "a.yaml": "->..data/a.yaml", ".x.yaml": "x"}, "", "d/a"},
		{"a link to a directory", map[string]string{"x/": "", "x/a.yaml": rule("d", "a"), "link": "->x"}, "link", "d/a"},
		{"one id in two files", map[string]string{"a.yaml": rule("d", "a"), "b.yaml": rule("d", "a")}, "", `DIR/b.yaml:2:9: rule "a": domain "d" has a rule of this id already, at DIR/a.yaml:2`},
		{"problems of all files", map[string]string{"a.yaml": "x: 1\n", "b.yaml": rule("", "a"), "c.yaml": rule("d", "a")}, "",
			"DIR/a.yaml:1:1: unknown key \"x\"; known are domain, rules\nDIR/a.yaml:1:1: domain: is missing\nDIR/a.yaml:1:1: rules: is missing\nDIR/b.yaml:1:8: domain: is empty, not text"},
		{"an empty directory", nil, "", "DIR: the directory has no *.yaml or *.yml file; for no rules, put one there with {domain: default, rules: []}"},
		{"nothing there", nil, "none", "DIR/none: stat: no such file or directory"},
		{"a dangling link", map[string]string{"a.yaml": "->gone"}, "", "DIR/a.yaml: stat: no such file or directory"},
		{"a directory that looks like a file", map[string]string{"a.yaml/": ""}, "", "DIR/a.yaml: is not a regular file"},
	} {
		dir := t.TempDir()
		write(t, dir, c.files)
		set, err := Load(filepath.Join(dir, c.path))
		var got string
		if err != nil {
			got = strings.ReplaceAll(err.Error(), dir, "DIR")
		} else {
			got = ruleNames(set)
		}
		if got != c.want || (set == nil) != (err != nil) {
			t.Errorf("%s:\ngot  %s\nwant %s", c.what, got, c.want)
		}
	}
}

func TestLoadErrorIs(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "none"))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v is not ErrNotExist", err)
	}
}

func TestLoadNothing(t *testing.T) {
	set, err := Load("")
	if err != nil || set.Len() != 0 {
		t.Fatalf("got %v, %v", set, err)
	}
	var zero Set
	none := parse(t, "domain: d\nrules: []\n")
	if set.Hash() != zero.Hash() || none.Hash() != zero.Hash() || zero.Len() != 0 || ruleNames(&zero) != "" {
		t.Errorf("hashes %s, %s and %s", set.Hash(), none.Hash(), zero.Hash())
	}
}

func TestLoadBounds(t *testing.T) {
	dir := t.TempDir()
	for i := range maxFiles + 1 {
		write(t, dir, map[string]string{fmt.Sprintf("%d.yaml", i): "domain: d\nrules: []\n"})
	}
	_, err := Load(dir)
	if want := dir + ": the directory has more than 1000 rules files"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	dir = t.TempDir()
	for i := range maxTotalSize/maxFileSize + 1 {
		name := filepath.Join(dir, fmt.Sprintf("%d.yaml", i))
		write(t, dir, map[string]string{filepath.Base(name): ""})
		if err := os.Truncate(name, maxFileSize); err != nil { // sparse
			t.Fatal(err)
		}
	}
	_, err = Load(dir)
	if want := dir + ": the files have more than 67108864 bytes together"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// Rules beyond the bound are refused, however they are spread.
func TestMaxRules(t *testing.T) {
	l := loader{byName: make(map[ruleName]*Rule)}
	for i := range maxRules + 1 {
		l.addRule(&Rule{Domain: "d", ID: fmt.Sprint(i), file: "f.yaml", line: i + 1, column: 1})
	}
	err := l.problems.Err()
	if want := `f.yaml:100001:1: rule "100000": is one more than the 100000 rules that a set may have`; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// Calendars beyond the bound are refused, and only those of the set count: not those of other sets.
func TestMaxCalendars(t *testing.T) {
	var rules []string // one per calendar, 27 zones of them
	add := func(unit string, anchors int) {
		for offset := -14; offset <= 12; offset++ {
			for anchor := range anchors {
				rules = append(rules, fmt.Sprintf("- {id: r%d, limits: [{limit: 1, window: {calendar: %s, timezone: Etc/GMT%+d, anchor: %d}, algorithm: fixed_window}]}\n",
					len(rules), unit, offset, anchor+1))
			}
		}
	}
	add("month", 31)
	add("year", 12)
	document := func(rules []string) string { return "domain: d\nrules:\n" + strings.Join(rules, "") }
	others := parse(t, document(rules[maxCalendars/2:]))
	parse(t, document(append(rules[:maxCalendars:maxCalendars], strings.Replace(rules[0], "r0", "again", 1))))
	_, err := Parse("f.yaml", []byte(document(rules[:maxCalendars+1])))
	want := `rule "r1024": limits[0].window: year/Etc/GMT+1/8 is one more than the 1024 distinct calendars that a set may have`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	runtime.KeepAlive(others)
}

func TestRevision(t *testing.T) {
	const base = `{id: r, when: {a: [x, y], b: z}, per: [u, v], limits: [{limit: 1, window: 60s}]}`
	hashOfRule := func(rule string) string {
		return parse(t, oneRule(rule)+"- {id: p, "+oneLimit+"}\n- {id: q, "+oneLimit+"}\n").Hash()
	}
	want := hashOfRule(base)
	// Nodes of different versions compare their hashes, so this one is here to
	// stay.
	if golden := "09cc25401086539a"; want != golden {
		t.Errorf("hash %s, want %s", want, golden)
	}
	for _, rule := range []string{
		base + " # a comment",
		`{enabled: true, limits: [{algorithm: sliding_window, window: 1m, limit: 1}], per: [v, u], when: {b: [z], a: [y, x]}, id: r}`,
		`{id: r, when: {a: [x, y], b: z}, per: [[v, u]], limits: [{limit: 1, window: 60s}], unlimited: false, on_failure: allow, durability: relaxed, enforce: 100, mode: hard, cost: 1}`,
		"id: r\n  per:\n    - u\n    - v\n  when:\n    a: [\"x\", 'y']\n    b: z\n  limits:\n    - limit: 1\n      window: 1m",
	} {
		if got := hashOfRule(rule); got != want {
			t.Errorf("%s\nhas another hash", rule)
		}
	}
	seen := map[string]string{want: base}
	for _, rule := range []string{
		`{id: s, when: {a: [x, y], b: z}, per: [u, v], limits: [{limit: 1, window: 60s}]}`,
		`{id: r, when: {a: [x, y], b: "z*"}, per: [u, v], limits: [{limit: 1, window: 60s}]}`,
		`{id: r, when: {a: [x, y], c: z}, per: [u, v], limits: [{limit: 1, window: 60s}]}`,
		`{id: r, when: {a: [x], b: z}, per: [u, v], limits: [{limit: 1, window: 60s}]}`,
		`{id: r, when: {a: [x, y], b: {absent: true}}, per: [u, v], limits: [{limit: 1, window: 60s}]}`,
		`{id: r, when: {a: [x, y], b: absent}, per: [u, v], limits: [{limit: 1, window: 60s}]}`,
		`{id: r, when: {a: [x, y], b: z}, per: [u], limits: [{limit: 1, window: 60s}]}`,
		`{id: r, when: {a: [x, y], b: z}, per: [u, v], limits: [{limit: 2, window: 60s}]}`,
		`{id: r, when: {a: [x, y], b: z}, per: [u, v], limits: [{limit: 1, window: 61s}]}`,
		`{id: r, when: {a: [x, y], b: z}, per: [u, v], limits: [{limit: 1, window: 60s}, {limit: 1, window: 61s}]}`,
		`{id: r, when: {a: [x, y], b: z}, per: [u, v], limits: [{limit: 1, window: 60s}], enabled: false}`,
		`{id: r, when: {a: [x, y], b: z}, per: [u, v], limits: [{limit: 1, window: 60s, algorithm: token_bucket}]}`,
		`{id: r, when: {a: [x, y], b: z}, per: [u, v], limits: [{limit: 1, window: 60s, algorithm: token_bucket, burst: 2}]}`,
		`{id: r, when: {a: [x, y], b: z}, per: [[u], [v]], limits: [{limit: 1, window: 60s}]}`,
		`{id: r, when: {a: [x, y], b: z}, per: [[u, v], [v]], limits: [{limit: 1, window: 60s}]}`,
		`{id: r, when: {a: [x, y], b: z}, unlimited: true}`,
		base[:len(base)-1] + `, on_failure: local}`,
		base[:len(base)-1] + `, on_failure: deny}`,
		base[:len(base)-1] + `, durability: strict}`,
		base[:len(base)-1] + `, enforce: 0}`,
		base[:len(base)-1] + `, enforce: 99}`,
		base[:len(base)-1] + `, mode: {soft: {over: 10%}}}`,
		base[:len(base)-1] + `, mode: {soft: {over: 11%}}}`,
		base[:len(base)-1] + `, mode: {elastic: {parent: q, up_to: 110%}}}`,
		base[:len(base)-1] + `, mode: {elastic: {parent: p, up_to: 110%}}}`,
		base[:len(base)-1] + `, cost: 0}`,
		`{id: r, limits: [{limit: 1, window: {calendar: day}, algorithm: fixed_window}]}`,
		`{id: r, limits: [{limit: 1, window: {calendar: day, timezone: Asia/Tokyo}, algorithm: fixed_window}]}`,
		`{id: r, limits: [{limit: 1, window: {calendar: month}, algorithm: fixed_window}]}`,
		`{id: r, limits: [{limit: 1, window: {calendar: month, anchor: 2}, algorithm: fixed_window}]}`,
		`{id: r, limits: [{limit: 1, window: 1d, algorithm: fixed_window}]}`,
		`{id: r, limits: [{limit: 1, window: 1d, algorithm: leaky_bucket}]}`,
		`{id: r, limits: [{limit: 1, window: 1d, algorithm: leaky_bucket}], max_delay: 1s}`,
		`{id: r, limits: [{limit: 1, window: 1d, algorithm: sliding_window_buckets}]}`,
		`{id: r, limits: [{limit: 1, window: 1d, algorithm: sliding_window_buckets, buckets: 59}]}`,
		base[:len(base)-1] + `, cost: size}`,
		base[:len(base)-1] + `, replaces: [p]}`,
		base[:len(base)-1] + `, replaces: [q]}`,
		base[:len(base)-1] + `, replaces: [p, q]}`,
		`{id: r, when: {a: [x, y], b: z}, per: [ip], limits: [{limit: 1, window: 60s}]}`,
		`{id: r, when: {a: [x, y], b: z}, per: [ip], limits: [{limit: 1, window: 60s}], ipv6_prefix: 56}`,
	} {
		got := hashOfRule(rule)
		if other, twice := seen[got]; twice {
			t.Errorf("one hash of\n%s\n%s", rule, other)
		}
		seen[got] = rule
	}
}

func TestQuickstart(t *testing.T) {
	set, err := Load("../deploy/examples/quickstart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		req  *Request
		want string
	}{
		{request("default", "user=alice", "endpoint=/api/v1/posts"), "posts-per-user[0]"},
		{request("default", "user=alice", "endpoint=/api/v1/posts", "method=POST"), "posts-per-user[0] writes-per-user[0]"},
		{request("default", "ip=10.0.0.1", "endpoint=/api/v1/posts"), "api-per-ip[0] api-per-ip[1]"},
		{request("default", "user=alice", "endpoint=/health"), ""},
	} {
		if got := matched(set.Match(testHasher, c.req, nil)); got != c.want {
			t.Errorf("%v: %q, want %q", c.req.Attributes, got, c.want)
		}
	}
}
