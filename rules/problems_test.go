package rules

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestDocumentProblems(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{``, `f.yaml:1:1: the file is empty; for no rules, write {domain: default, rules: []}`},
		{"# nothing\n", `f.yaml:1:1: the file is empty; for no rules, write {domain: default, rules: []}`},
		{"---\n---\n", "f.yaml:1:1: the document is empty; write domain and rules, or leave out its ---\nf.yaml:2:1: the document is empty; write domain and rules, or leave out its ---"},
		{"domain: d\n", `f.yaml:1:1: rules: is missing`},
		{"rules: []\n", `f.yaml:1:1: domain: is missing`},
		{"domain: d\nrules:\n", `f.yaml:2:7: rules: is empty, not a list`},
		{"domain: d\nrules: {}\n", `f.yaml:2:8: rules: is a mapping, not a list`},
		{"domain: d\nrules: []\n---\n", `f.yaml:3:1: the document is empty; write domain and rules, or leave out its ---`},
		{"- domain: d\n", `f.yaml:1:1: is a list, not a mapping`},
		{"domain: \"\"\nrules: []\n", `f.yaml:1:9: domain: "" has 0 bytes, not 1 to 64`},
		{"domain: a b\nrules: []\n", `f.yaml:1:9: domain: "a b" has characters other than letters, digits and _ - .`},
		{"domain: a/b\nrules: []\n", `f.yaml:1:9: domain: "a/b" has characters other than letters, digits and _ - .`},
		{"domain: 2026-01-01\nrules: []\n", `f.yaml:1:9: domain: "2026-01-01" is a date, not text; put it in quotes`},
		{"domain: 1.0\nrules: []\n", `f.yaml:1:9: domain: "1.0" is a number, not text; put it in quotes`},
		{"domain: [d]\nrules: []\n", `f.yaml:1:9: domain: is a list, not text`},
		{"domain: ddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd\nrules: []\n", `f.yaml:1:9: domain: "dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd"... has 65 bytes, not 1 to 64`},
		{"domain: d\nruls: []\n", `f.yaml:2:1: unknown key "ruls"; did you mean "rules"?`},
		{"domain: d\ndomain: e\nrules: []\n", `f.yaml:2:1: key "domain" stands here twice, first in line 1`},
		{"domain: d\nversion: 1\nrules: []\n", `f.yaml:2:1: unknown key "version"; known are domain, rules`},
		{"domain: &x d\nrules: []\n", `f.yaml:1:9: domain: an anchor is not allowed; leave out "&x"`},
		{"domain: !!str d\nrules: []\n", `f.yaml:1:9: domain: a tag is not allowed; leave out "!!str"`},
		{"&x {domain: d, rules: []}\n", `f.yaml:1:1: an anchor is not allowed; leave out "&x"`},
		{"x: &x d\ndomain: *x\nrules: []\n", "f.yaml:1:1: unknown key \"x\"; known are domain, rules\nf.yaml:2:9: domain: an alias is not allowed; write out what \"*x\" stands for"},
		{"domain: d\nrules: []\n<<: {domain: e}\n", `f.yaml:3:1: "<<" is a merge key, not text; put it in quotes`},
		{"domain: d\nrules: []\n? [a, b]\n: c\n", `f.yaml:3:3: is a list, not text`},
		{"domain: d\nrules: []\n1: c\n", `f.yaml:3:1: "1" is a number, not text; put it in quotes`},
		{"domain: d\nrules: [\n", `f.yaml:2: not valid YAML: did not find expected node content`},
		{"domain: d\nrules:\n\t- id: r\n", `f.yaml:3: not valid YAML: found character that cannot start any token`},
		{"domain: d\nrules:\n  - id: r\n   when: {}\n", `f.yaml:4: not valid YAML: did not find expected '-' indicator`},
		{"domain: \"d\nrules: []\n", `f.yaml:1: not valid YAML: found unexpected end of stream`},
		{"rules: []\ndomain: \"d\n# a\n# b\n# c\n# d\n", `f.yaml:2: not valid YAML: found unexpected end of stream`},
		{"domain: d\nrules: []\nfoo\n", `f.yaml:3: not valid YAML: could not find expected ':'`},
		{"domain: d\nrules: []\nx: \xff\n", `f.yaml:3: not valid YAML: invalid leading UTF-8 octet`},
		{"domain: d\nrules: []\nx: \x00\n", `f.yaml:3: not valid YAML: control characters are not allowed`},
		{"domain: d\nrules: []\n---\ndomain: d\nrules: []\nrules: []\n---\n: - [\n", "f.yaml:6:1: key \"rules\" stands here twice, first in line 5\nf.yaml:8: not valid YAML: did not find expected key"},
		{"domain: d\nrules:\n- {id: r, limits: [{limit: 1, window: 1s}]}\n- {id: r, limits: [{limit: 1, window: 1s}]}\n", `f.yaml:4:3: rule "r": domain "d" has a rule of this id already, at f.yaml:3`},
		{"domain: d\nrules:\n- {id: r, limits: [{limit: 1, window: 1s}]}\n---\ndomain: d\nrules:\n- {id: r, limits: [{limit: 1, window: 1s}]}\n", `f.yaml:7:3: rule "r": domain "d" has a rule of this id already, at f.yaml:3`},
	} {
		refused(t, c.text, c.want)
	}
}

func TestRuleProblems(t *testing.T) {
	for _, c := range []struct{ rule, want string }{
		{`1`, `f.yaml:3:3: rules[0]: "1" is not a mapping`},
		{`[]`, `f.yaml:3:3: rules[0]: is a list, not a mapping`},
		{`~`, `f.yaml:3:3: rules[0]: is empty, not a mapping`},
		{`*x`, `f.yaml:3: not valid YAML: unknown anchor 'x' referenced`},
		{`{}`, "f.yaml:3:3: rules[0].id: is missing\nf.yaml:3:3: rules[0].limits: is missing"},
		{`{limits: [{limit: 1, window: 5}], y: 1}`, "f.yaml:3:3: rules[0].id: is missing\nf.yaml:3:32: rules[0].limits[0].window: \"5\" is not a duration; write a number with a unit, such as 10s, 5m, 1h, 1d\nf.yaml:3:37: rules[0]: unknown key \"y\"; known are id, when, per, limits, unlimited, replaces, on_failure, durability, enforce, mode, max_delay, cost, ipv6_prefix, enabled"},
		{`{id: r}`, `f.yaml:3:3: rule "r": limits: is missing`},
		{`{limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:3: rules[0].id: is missing`},
		{`{id: 404, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:8: rule "404": id: "404" is a number, not text; put it in quotes`},
		{`{id: '', limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:8: rules[0].id: "" has 0 bytes, not 1 to 128`},
		{`{id: a b, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:8: rule "a b": id: "a b" has characters other than letters, digits and _ - . /`},
		{`{id: [r], limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:8: rules[0].id: is a list, not text`},
		{`{id: r, limit: 1, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:11: rule "r": unknown key "limit"; did you mean "limits"?`},
		{`{id: r, burst: 1, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:11: rule "r": unknown key "burst"; known are id, when, per, limits, unlimited, replaces, on_failure, durability, enforce, mode, max_delay, cost, ipv6_prefix, enabled`},
		{`{id: r, id: s, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:11: rule "r": key "id" stands here twice, first in line 3`},
		{`{id: r, enabled: yes, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:20: rule "r": enabled: "yes" is not true or false`},
		{`{id: r, enabled: True, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:20: rule "r": enabled: "True" is not true or false`},
		{`{id: r, enabled: "true", limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:20: rule "r": enabled: "true" is not true or false`},
		{`{id: r, enabled: 1, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:20: rule "r": enabled: "1" is not true or false`},
		{`{id: r, enabled: , limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:20: rule "r": enabled: is empty, not true or false`},
		{`{id: r, limits: []}`, `f.yaml:3:19: rule "r": limits: is empty; write at least 1`},
		{`{id: r, limits: {limit: 1, window: 1s}}`, `f.yaml:3:19: rule "r": limits: is a mapping, not a list`},
		{`{id: r, limits: [1]}`, `f.yaml:3:20: rule "r": limits[0]: "1" is not a mapping`},
		{`{id: r, limits: [{}]}`, "f.yaml:3:20: rule \"r\": limits[0].limit: is missing\nf.yaml:3:20: rule \"r\": limits[0].window: is missing"},
		{`{id: r, limits: [~]}`, `f.yaml:3:20: rule "r": limits[0]: is empty, not a mapping`},
		{`{id: r, limits: [{limit: 1}]}`, `f.yaml:3:20: rule "r": limits[0].window: is missing`},
		{`{id: r, limits: [{window: 1s}]}`, `f.yaml:3:20: rule "r": limits[0].limit: is missing`},
		{`{id: r, limits: [{limit: -1, window: 1s}]}`, `f.yaml:3:28: rule "r": limits[0].limit: "-1" is not between 0 and 2147483648`},
		{`{id: r, limits: [{limit: 2147483649, window: 1s}]}`, `f.yaml:3:28: rule "r": limits[0].limit: "2147483649" is not between 0 and 2147483648`},
		{`{id: r, limits: [{limit: 99999999999999999999, window: 1s}]}`, `f.yaml:3:28: rule "r": limits[0].limit: "99999999999999999999" is not between 0 and 2147483648`},
		{`{id: r, limits: [{limit: 010, window: 1s}]}`, `f.yaml:3:28: rule "r": limits[0].limit: "010" is not a whole number; write decimal digits only, such as 100`},
		{`{id: r, limits: [{limit: 0o10, window: 1s}]}`, `f.yaml:3:28: rule "r": limits[0].limit: "0o10" is not a whole number; write decimal digits only, such as 100`},
		{`{id: r, limits: [{limit: 0x10, window: 1s}]}`, `f.yaml:3:28: rule "r": limits[0].limit: "0x10" is not a whole number; write decimal digits only, such as 100`},
		{`{id: r, limits: [{limit: 1_000, window: 1s}]}`, `f.yaml:3:28: rule "r": limits[0].limit: "1_000" is not a whole number; write decimal digits only, such as 100`},
		{`{id: r, limits: [{limit: 10.0, window: 1s}]}`, `f.yaml:3:28: rule "r": limits[0].limit: "10.0" is not a whole number; write decimal digits only, such as 100`},
		{`{id: r, limits: [{limit: 1e3, window: 1s}]}`, `f.yaml:3:28: rule "r": limits[0].limit: "1e3" is not a whole number; write decimal digits only, such as 100`},
		{`{id: r, limits: [{limit: +1, window: 1s}]}`, `f.yaml:3:28: rule "r": limits[0].limit: "+1" is not a whole number; write decimal digits only, such as 100`},
		{`{id: r, limits: [{limit: -0, window: 1s}]}`, `f.yaml:3:28: rule "r": limits[0].limit: "-0" is not between 0 and 2147483648`},
		{`{id: r, limits: [{limit: "10", window: 1s}]}`, `f.yaml:3:28: rule "r": limits[0].limit: "10" is text, not a whole number; leave out the quotes`},
		{`{id: r, limits: [{limit: ten, window: 1s}]}`, `f.yaml:3:28: rule "r": limits[0].limit: "ten" is not a whole number; write decimal digits only, such as 100`},
		{`{id: r, limits: [{limit: .inf, window: 1s}]}`, `f.yaml:3:28: rule "r": limits[0].limit: ".inf" is not a whole number; write decimal digits only, such as 100`},
		{`{id: r, limits: [{limit: , window: 1s}]}`, `f.yaml:3:28: rule "r": limits[0].limit: is empty, not a whole number`},
		{`{id: r, limits: [{limit: [1], window: 1s}]}`, `f.yaml:3:28: rule "r": limits[0].limit: is a list, not a whole number`},
		{`{id: r, limits: [{limit: 1, window: 1s}, {limit: 1, window: 5}]}`, `f.yaml:3:63: rule "r": limits[1].window: "5" is not a duration; write a number with a unit, such as 10s, 5m, 1h, 1d`},
		{`{id: r, limits: [{limit: 1, window: "5"}]}`, `f.yaml:3:39: rule "r": limits[0].window: "5" is not a duration; write a number with a unit, such as 10s, 5m, 1h, 1d`},
		{`{id: r, limits: [{limit: 1, window: 1y}]}`, `f.yaml:3:39: rule "r": limits[0].window: "1y" is not a duration; write a number with a unit, such as 10s, 5m, 1h, 1d`},
		{`{id: r, limits: [{limit: 1, window: 9ms}]}`, `f.yaml:3:39: rule "r": limits[0].window: "9ms" is not between 10ms and 366d`},
		{`{id: r, limits: [{limit: 1, window: 367d}]}`, `f.yaml:3:39: rule "r": limits[0].window: "367d" is not between 10ms and 366d`},
		{`{id: r, limits: [{limit: 1, window: -1h}]}`, `f.yaml:3:39: rule "r": limits[0].window: "-1h" is not between 10ms and 366d`},
		{`{id: r, limits: [{limit: 1, window: {calendar: month}}]}`, `f.yaml:3:20: rule "r": limits[0]: calendar: month/UTC is not for sliding_window, only for fixed_window`},
		{`{id: r, limits: [{limit: 1, window: }]}`, `f.yaml:3:39: rule "r": limits[0].window: is empty, not a duration`},
		{`{id: r, limits: [{limit: 1, window: 1s, algorithm: sliding_windw}]}`, `f.yaml:3:54: rule "r": limits[0].algorithm: "sliding_windw" is not an algorithm; known are sliding_window, fixed_window, token_bucket, gcra, sliding_window_buckets, sliding_window_log, leaky_bucket; did you mean "sliding_window"?`},
		{`{id: r, limits: [{limit: 1, window: 1s, algorithm: leaky}]}`, `f.yaml:3:54: rule "r": limits[0].algorithm: "leaky" is not an algorithm; known are sliding_window, fixed_window, token_bucket, gcra, sliding_window_buckets, sliding_window_log, leaky_bucket`},
		{`{id: r, limits: [{limit: 1, window: 1s, algorithm: 1}]}`, `f.yaml:3:54: rule "r": limits[0].algorithm: "1" is a number, not text; put it in quotes`},
		{`{id: r, limits: [{limit: 1, window: 1s, algorithm: ''}]}`, `f.yaml:3:54: rule "r": limits[0].algorithm: "" is not an algorithm; known are sliding_window, fixed_window, token_bucket, gcra, sliding_window_buckets, sliding_window_log, leaky_bucket`},
		{`{id: r, limits: [{limit: 1, window: 1s, burst: 2}]}`, `f.yaml:3:20: rule "r": limits[0]: burst: 2 is not for sliding_window, which has none`},
		{`{id: r, limits: [{limit: 1, window: 1s, burts: 2}]}`, `f.yaml:3:43: rule "r": limits[0]: unknown key "burts"; did you mean "burst"?`},
		{`{id: r, limits: [{limit: 1, window: 1s, algorithm: gcra, burst: -1}]}`, `f.yaml:3:67: rule "r": limits[0].burst: "-1" is not between 0 and 2147483648`},
		{`{id: r, limits: [{limit: 1, window: 1m}, {limit: 2, window: 60s}]}`, `f.yaml:3:44: rule "r": limits[1]: is a second limit of sliding_window over 1m; keep one`},
		{`{id: r, when: [], limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:17: rule "r": when: is a list, not a mapping`},
		{`{id: r, when: , limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:17: rule "r": when: is empty, not a mapping`},
		{`{id: r, when: {a: x, a: y}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:24: rule "r": when: key "a" stands here twice, first in line 3`},
		{`{id: r, when: {'': x}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:18: rule "r": when: the attribute's name "" has 0 bytes, not 1 to 64`},
		{`{id: r, when: {1: x}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:18: rule "r": when: "1" is a number, not text; put it in quotes`},
		{`{id: r, when: {a: 404}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:21: rule "r": when.a: "404" is a number, not text; put it in quotes`},
		{`{id: r, when: {a: true}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:21: rule "r": when.a: "true" is a boolean, not text; put it in quotes`},
		{`{id: r, when: {a: 2026-01-01}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:21: rule "r": when.a: "2026-01-01" is a date, not text; put it in quotes`},
		{`{id: r, when: {a: 1.5}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:21: rule "r": when.a: "1.5" is a number, not text; put it in quotes`},
		{`{id: r, when: {a: }, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:21: rule "r": when.a: is empty, not text`},
		{`{id: r, when: {a: *x}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3: not valid YAML: unknown anchor 'x' referenced`},
		{`{id: r, when: {a: /a*/b}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:21: rule "r": when.a: "/a*/b" has a '*' before its end; it may only end a prefix, as in "/api/*"; write all else as an expression, such as re:/api/[^/]*/posts`},
		{`{id: r, when: {a b: '**'}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:23: rule "r": when["a b"]: "**" has a '*' before its end; it may only end a prefix, as in "/api/*"; write all else as an expression, such as re:/api/[^/]*/posts`},
		{`{id: r, when: {a: 're:'}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:21: rule "r": when.a: "re:" has no expression; write one after re:, such as re:/v[12]/.*`},
		{`{id: r, when: {a: 're:('}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:21: rule "r": when.a: "re:(" does not compile: missing closing ): "("`},
		{`{id: r, when: {a: 're:a)|(b'}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:21: rule "r": when.a: "re:a)|(b" does not compile: unexpected ): "a)|(b"`},
		{`{id: r, when: {a: 're:\Qa'}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:21: rule "r": when.a: "re:\\Qa" does not compile: \Q without \E`},
		{`{id: r, when: {a: 're:(?=a)'}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:21: rule "r": when.a: "re:(?=a)" does not compile: invalid or unsupported Perl syntax: "(?="`},
		{`{id: r, when: {a: 're:a{900}b{900}'}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:21: rule "r": when.a: "re:a{900}b{900}" is too complex: 1802 instructions, more than 1000`},
		{`{id: r, when: {a: 're:(a{100}){100}'}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:21: rule "r": when.a: "re:(a{100}){100}" does not compile: invalid repeat count: "{100}"`},
		{`{id: r, when: {a: []}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:21: rule "r": when.a: is empty; write at least 1`},
		{`{id: r, when: {a: [x, '*']}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:25: rule "r": when.a[1]: "*" fits every value; write it alone instead of a list`},
		{`{id: r, when: {a: [x, y, x]}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:28: rule "r": when.a[2]: "x" stands here twice, first in line 3`},
		{`{id: r, when: {a: [x, [y]]}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:25: rule "r": when.a[1]: is a list, not text`},
		{`{id: r, when: {a: [x, {absent: true}]}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:25: rule "r": when.a[1]: is a mapping, not text`},
		{`{id: r, when: {a: [x, 1]}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:25: rule "r": when.a[1]: "1" is a number, not text; put it in quotes`},
		{`{id: r, when: {a: {absent: false}}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:30: rule "r": when.a.absent: "false" is not allowed; for an attribute that is there, write "*" as the condition`},
		{`{id: r, when: {a: {absent: yes}}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:30: rule "r": when.a.absent: "yes" is not true or false`},
		{`{id: r, when: {a: {absnt: true}}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:22: rule "r": when.a: unknown key "absnt"; did you mean "absent"?`},
		{`{id: r, when: {a: {}}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:21: rule "r": when.a.absent: is missing`},
		{`{id: r, per: user, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:16: rule "r": per: "user" is not a list`},
		{`{id: r, per: , limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:16: rule "r": per: is empty, not a list`},
		{`{id: r, per: [user, user], limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:23: rule "r": per[1]: "user" stands here twice, first in line 3`},
		{`{id: r, per: [''], limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:17: rule "r": per[0]: the attribute's name "" has 0 bytes, not 1 to 64`},
		{`{id: r, per: [1], limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:17: rule "r": per[0]: "1" is a number, not text; put it in quotes`},
		{`{id: r, per: [a], when: {a: {absent: true}}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:3: rule "r": per: has "a", which when wants absent; no request would match`},
	} {
		refused(t, oneRule(c.rule), c.want)
	}
}

// refused checks that a text has just these problems.
func refused(t *testing.T, text, want string) {
	t.Helper()
	set, err := Parse("f.yaml", []byte(text))
	if set != nil || err == nil || err.Error() != want {
		t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
	}
	if _, ok := errors.AsType[*LoadError](err); !ok {
		t.Errorf("%s\nhas a %T", text, err)
	}
}

// repeat joins n texts made from their numbers.
func repeat(n int, format string) string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(texts, ", ")
}

func TestBounds(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	for _, c := range []struct {
		rule func(n int) string
		most int
		want string // of most+1
	}{
		{func(n int) string { return "id: " + x(n) }, maxID, `rule "` + x(64) + `"...: id: "` + x(64) + `"... has 129 bytes, not 1 to 128`},
		{func(n int) string { return "id: r, per: [" + repeat(n, "a%d") + "]" }, maxPer, `rule "r": per: has 17 elements, more than 16`},
		{func(n int) string { return "id: r, per: [" + x(n) + "]" }, maxAttribute, `rule "r": per[0]: the attribute's name "` + x(64) + `"... has 65 bytes, not 1 to 64`},
		{func(n int) string { return "id: r, when: {" + repeat(n, "a%d: x") + "}" }, maxConditions, `rule "r": when: has 17 conditions, more than 16`},
		{func(n int) string { return "id: r, when: {" + x(n) + ": x}" }, maxAttribute, `rule "r": when: the attribute's name "` + x(64) + `"... has 65 bytes, not 1 to 64`},
		{func(n int) string { return "id: r, when: {a: [" + repeat(n, "x%d") + "]}" }, maxList, `rule "r": when.a: has 257 elements, more than 256`},
		{func(n int) string { return "id: r, when: {a: " + x(n) + "}" }, maxValue, `rule "r": when.a: "` + x(64) + `"... has 257 bytes, more than 256`},
		{func(n int) string { return "id: r, when: {a: 're:" + strings.Repeat("|", n) + "'}" }, maxRegexp, `rule "r": when.a: "re:` + strings.Repeat("|", 61) + `"... has 1025 bytes after re:, more than 1024`},
		{func(n int) string { return fmt.Sprintf("id: r, when: {a: 're:x{%d}y{%d}'}", n/2-1, n-n/2-1) }, maxInstructions, `rule "r": when.a: "re:x{499}y{500}" is too complex: 1001 instructions, more than 1000`},
	} {
		const limits = ", limits: [{limit: 1, window: 1s}]}"
		if _, err := Parse("f.yaml", []byte(oneRule("{"+c.rule(c.most)+limits))); err != nil {
			t.Errorf("at the bound: %v", err)
		}
		_, err := Parse("f.yaml", []byte(oneRule("{"+c.rule(c.most+1)+limits)))
		if err == nil || !strings.HasSuffix(err.Error(), ": "+c.want) {
			t.Errorf("beyond the bound:\ngot  %v\nwant ...%s", err, c.want)
		}
	}
	limits := func(n int) string {
		return oneRule("{id: r, limits: [" + repeat(n, "{limit: 1, window: 1%02dms}") + "]}")
	}
	parse(t, limits(maxLimits))
	refused(t, limits(maxLimits+1), `f.yaml:3:236: rule "r": limits: has 9 elements, more than 8`)
}

func TestSizeBound(t *testing.T) {
	text := []byte("domain: d\nrules: []\n#")
	text = append(text, bytes.Repeat([]byte("x"), maxFileSize-len(text))...)
	if _, err := Parse("f.yaml", text); err != nil {
		t.Error(err)
	}
	_, err := Parse("f.yaml", append(text, 'x'))
	if want := "f.yaml: has more than 4194304 bytes; split it into several files of one directory"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// All problems are counted, the first ones by position kept.
func TestManyProblems(t *testing.T) {
	text := "domain: d\nrules:\n"
	for i := range 500 {
		text += fmt.Sprintf("- {id: r%d, limits: [{limit: 1, window: 1s}], x: 1}\n", i)
	}
	_, err := Parse("f.yaml", []byte("y: 1\n"+text+"z: 1\n"))
	e, ok := errors.AsType[*LoadError](err)
	if !ok || len(e.Problems) != maxProblems || e.More != 452 {
		t.Fatalf("%d problems and %d more", len(e.Problems), e.More)
	}
	for i, p := range e.Problems {
		if line := max(i+3, 1); i > 0 && p.Line != line {
			t.Errorf("problem %d is that of line %d, not %d", i, p.Line, line)
		}
	}
	if first := e.Problems[0]; first.Line != 1 {
		t.Errorf("the first one is %v", first)
	}
	lines := strings.Split(err.Error(), "\n")
	if got := lines[len(lines)-1]; got != "and 452 more" {
		t.Errorf("the last line is %q", got)
	}
}

// The first ones are kept in whichever order they come, and no more than needed.
func TestProblemsKeepFirst(t *testing.T) {
	var ps problems
	for i := range 1000 {
		ps.add(Problem{File: "f.yaml", Line: i*7%1000 + 1})
		if len(ps.list) >= 2*maxProblems {
			t.Fatalf("%d are kept", len(ps.list))
		}
	}
	e, _ := errors.AsType[*LoadError](ps.err())
	for i, p := range e.Problems {
		if p.Line != i+1 {
			t.Errorf("problem %d is that of line %d", i, p.Line)
		}
	}
	if len(e.Problems) != maxProblems || e.More != 1000-maxProblems {
		t.Errorf("%d problems and %d more", len(e.Problems), e.More)
	}
}

// Expressions that the budget has no room for are not even compiled.
func TestRegexpMemory(t *testing.T) {
	text := "domain: d\nrules:\n"
	for i := range 20 {
		text += fmt.Sprintf("- {id: r%d, when: {a: 're:\\pL{900}'}, limits: [{limit: 1, window: 1s}]}\n", i)
	}
	_, err := Parse("f.yaml", []byte(text))
	const want = `f.yaml:16:23: rule "r13": when.a: "re:\\pL{900}" is more than the rules can hold: all expressions together may take 128 MiB`
	if err == nil || strings.Split(err.Error(), "\n")[0] != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	budget := 1 << 20
	if _, err := parsePattern(`re:\pL{1000}`, &budget); err == nil || budget >= 0 {
		t.Errorf("%d bytes are left after an expression that is too complex: %v", budget, err)
	}
	if _, err := parsePattern("re:(", &budget); !errors.Is(err, errRegexpMemory) {
		t.Errorf("compiled without a budget: %v", err)
	}
}
