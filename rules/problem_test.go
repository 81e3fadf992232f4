package rules

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/rules/internal/problem"
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
		{"domain: d\nrules: [\n", `f.yaml:3:1: not valid YAML: a value is missing, or a bracket is not closed`},
		{"domain: d\nrules:\n\t- id: r\n", `f.yaml:3:1: not valid YAML: a tab cannot stand here; write spaces instead`},
		{"domain: d\nrules:\n  - id: r\n   when: {}\n", `f.yaml:4:4: not valid YAML: the indentation fits nothing before; what begins in line 3 has its keys or items in column 3`},
		{"domain: \"d\nrules: []\n", `f.yaml:1:9: not valid YAML: the quote that begins here is not closed`},
		{"rules: []\ndomain: \"d\n# a\n# b\n# c\n# d\n", `f.yaml:2:9: not valid YAML: the quote that begins here is not closed`},
		{"domain: d\nrules: []\nfoo\n", `f.yaml:3:1: not valid YAML: a key without a colon; write KEY: VALUE`},
		{"domain: d\nrules: []\nx: \xff\n", `f.yaml:3:4: not valid YAML: invalid leading UTF-8 octet (value: 255)`},
		{"domain: d\nrules: []\nx: \x00\n", `f.yaml:3:4: not valid YAML: control characters are not allowed (value: 0)`},
		{"domain: d\nrules: []\n---\ndomain: d\nrules: []\nrules: []\n---\n: - [\n", "f.yaml:6:1: key \"rules\" stands here twice, first in line 5\nf.yaml:9:1: not valid YAML: a value is missing, or a bracket is not closed"},
		{"domain: d\nrules:\n- {id: r, limits: [{limit: 1, window: 1s}]}\n- {id: r, limits: [{limit: 1, window: 1s}]}\n", `f.yaml:4:3: rule "r": domain "d" has a rule of this id already, at f.yaml:3`},
		{"domain: d\nrules:\n- {id: r, limits: [{limit: 1, window: 1s}]}\n---\ndomain: d\nrules:\n- {id: r, limits: [{limit: 1, window: 1s}]}\n", `f.yaml:7:3: rule "r": domain "d" has a rule of this id already, at f.yaml:3`},
	} {
		refused(t, c.text, c.want)
	}
}

// knownKeys is how messages list the keys of a rule.
func knownKeys() string {
	var keys []string
	for _, k := range ruleKeys {
		keys = append(keys, k.Key)
	}
	return strings.Join(keys, ", ")
}

// knownAlgorithms is how messages list all algorithms.
var knownAlgorithms = strings.Join(algorithms.Names(), ", ")

func TestRuleProblems(t *testing.T) {
	for _, c := range []struct{ rule, want string }{
		{`1`, `f.yaml:3:3: rules[0]: "1" is not a mapping`},
		{`[]`, `f.yaml:3:3: rules[0]: is a list, not a mapping`},
		{`~`, `f.yaml:3:3: rules[0]: is empty, not a mapping`},
		{`*x`, `f.yaml:3:3: not valid YAML: no anchor of this name stands before; a value cannot begin with *; put it in quotes: "*x"`},
		{`{}`, "f.yaml:3:3: rules[0].id: is missing\nf.yaml:3:3: rules[0].limits: is missing"},
		{`{limits: [{limit: 1, window: 5}], y: 1}`, "f.yaml:3:3: rules[0].id: is missing\nf.yaml:3:32: rules[0].limits[0].window: \"5\" is not a duration; write a number with a unit, such as 10s, 5m, 1h, 1d\nf.yaml:3:37: rules[0]: unknown key \"y\"; known are " + knownKeys()},
		{`{id: r}`, `f.yaml:3:3: rule "r": limits: is missing`},
		{`{limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:3: rules[0].id: is missing`},
		{`{id: 404, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:8: rule "404": id: "404" is a number, not text; put it in quotes`},
		{`{id: '', limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:8: rules[0].id: "" has 0 bytes, not 1 to 128`},
		{`{id: a b, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:8: rule "a b": id: "a b" has characters other than letters, digits and _ - . /`},
		{`{id: [r], limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:8: rules[0].id: is a list, not text`},
		{`{id: r, limit: 1, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:11: rule "r": unknown key "limit"; did you mean "limits"?`},
		{`{id: r, burst: 1, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:11: rule "r": unknown key "burst"; known are ` + knownKeys()},
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
		{`{id: r, limits: [{limit: 1, window: 1s, algorithm: sliding_windw}]}`, `f.yaml:3:54: rule "r": limits[0].algorithm: "sliding_windw" is not an algorithm; known are ` + knownAlgorithms + `; did you mean "sliding_window"?`},
		{`{id: r, limits: [{limit: 1, window: 1s, algorithm: leaky}]}`, `f.yaml:3:54: rule "r": limits[0].algorithm: "leaky" is not an algorithm; known are ` + knownAlgorithms},
		{`{id: r, limits: [{limit: 1, window: 1s, algorithm: 1}]}`, `f.yaml:3:54: rule "r": limits[0].algorithm: "1" is a number, not text; put it in quotes`},
		{`{id: r, limits: [{limit: 1, window: 1s, algorithm: ''}]}`, `f.yaml:3:54: rule "r": limits[0].algorithm: "" is not an algorithm; known are ` + knownAlgorithms},
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
		{`{id: r, when: {a: *x}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:21: not valid YAML: no anchor of this name stands before; a value cannot begin with *; put it in quotes: "*x"`},
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
		{`{id: r, per: [identifier], limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:17: rule "r": per[0]: "identifier" is a field of requests, not an attribute: the type names the attribute, whose value is the identifier; for "identifier_type": "user" write user`},
		{`{id: r, per: [[user], [identifier]], limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:26: rule "r": per[1][0]: "identifier" is a field of requests, not an attribute: the type names the attribute, whose value is the identifier; for "identifier_type": "user" write user`},
		{`{id: r, when: {identifier_type: user}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:18: rule "r": when: "identifier_type" is a field of requests, not an attribute: the type names the attribute, whose value is the identifier; that the type is "user" is the condition user: "*"`},
		{`{id: r, cost: identifier, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:17: rule "r": cost: "identifier" is a field of requests, not an attribute: the type names the attribute, whose value is the identifier; for "identifier_type": "user" write user`},
		{`{id: r, when: {ip: 10.0.0.1-10.0.0.9}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:22: rule "r": when.ip: "10.0.0.1-10.0.0.9" is not an IP address; write an address, a block such as 10.0.0.0/8, or a prefix such as "10.0.*"`},
		{`{id: r, when: {ip: [10.0.0.1, localhost]}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:33: rule "r": when.ip[1]: "localhost" is not an IP address; write an address, a block such as 10.0.0.0/8, or a prefix such as "10.0.*"`},
		{`{id: r, when: {ip: 10.0.0}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:22: rule "r": when.ip: "10.0.0" is not an IP address; write an address, a block such as 10.0.0.0/8, or a prefix such as "10.0.*"`},
		{`{id: r, when: {ip: ''}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:22: rule "r": when.ip: "" is not an IP address; write an address, a block such as 10.0.0.0/8, or a prefix such as "10.0.*"`},
		{`{id: r, when: {ip: "10.0.0.1-*"}, limits: [{limit: 1, window: 1s}]}`, `f.yaml:3:22: rule "r": when.ip: "10.0.0.1-*" is not the beginning of an IP address; write an address, a block such as 10.0.0.0/8, or a prefix such as "10.0.*"`},
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

// Names that a path cannot hold: another rule would be asked for, or none.
func TestNamesInPaths(t *testing.T) {
	const text = "domain: %s\nrules: [{id: %s, limits: [{limit: 1, window: 1s}]}]"
	for _, id := range []string{"a", "a/b", "a/b.c/d", "..a", "a..", "..."} {
		if _, err := Parse("f.yaml", fmt.Appendf(nil, text, "d", id)); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	for _, id := range []string{"a/../b", "a//b", "/a", "a/", "a/.", "..", ".", "/"} {
		_, err := Parse("f.yaml", fmt.Appendf(nil, text, "d", id))
		if err == nil || !strings.Contains(err.Error(), "id: "+strconv.Quote(id)+" cannot stand in a path: between slashes is ") {
			t.Errorf("%s: %v", id, err)
		}
	}
	for _, domain := range []string{".", ".."} {
		if _, err := Parse("f.yaml", fmt.Appendf(nil, text, domain, "a")); err == nil || !strings.Contains(err.Error(), "domain: ") {
			t.Errorf("domain %s: %v", domain, err)
		}
	}
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
	if !ok || len(e.Problems) != problem.Max || e.More != 452 {
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
