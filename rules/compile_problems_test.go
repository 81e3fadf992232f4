package rules

import (
	"testing"
)

// everything has a rule with everything that the format knows, and odd texts.
const everything = `domain: shop
rules:
  - id: posts
    when:
      debug: {absent: true}
      method: [POST, PUT]
      path: re:/v[12]/.*
      status: "404"
    per: [ip, user]
    limits:
      - {limit: 10, window: 1s, burst: 20, algorithm: token_bucket}
      - {limit: 500, window: 1h}
    replaces: [free, hybrid]
    on_failure: deny
    durability: strict
    enforce: 0
    mode: {elastic: {parent: hybrid, up_to: 150%}}
    cost: size
    ipv6_prefix: 56
  - id: hybrid
    per: [[ip], [user]]
    limits:
      - {limit: 0, window: 10ms}
      - {limit: 9, window: {calendar: month, timezone: Europe/Paris, anchor: 15}, algorithm: fixed_window}
      - {limit: 9, window: {calendar: day}, algorithm: fixed_window}
      - {limit: 9, window: 1s, buckets: 7, algorithm: sliding_window_buckets}
    on_failure: local
    enforce: 50
    mode: {soft: {over: 10%}}
    cost: 0
  - id: queue
    limits:
      - {limit: 2, window: 1s, algorithm: leaky_bucket}
    max_delay: 1m30s
  - id: free
    when:
      ip: [10.0.0.0/8, '2001:db8::1']
    unlimited: true
    enabled: false
---
domain: other
rules:
  - id: odd/texts
    when:
      "1": "null"
      a: ""
      b: "line\nfeed\0\Lé"
      c: [' x', '# z', '''', '- y', "true", y, '{']
      d: '*'
      'key: x': '"'
    limits:
      - {limit: 2147483648, window: 366d}
`

// Problems of plain data name rule, field and value, and no lines.
func TestCompileProblems(t *testing.T) {
	limits := []LimitSpec{{Limit: 1, Window: "1s"}}
	for _, c := range []struct {
		docs []Document
		want string
	}{
		{[]Document{{}}, `api: domain: "" has 0 bytes, not 1 to 64`},
		{[]Document{{Domain: "d"}, {Domain: "a b"}}, `api: documents[1].domain: "a b" has characters other than letters, digits and _ - .`},
		{[]Document{{Domain: "d", Rules: []Spec{{Limits: limits}}}}, `api: rules[0].id: "" has 0 bytes, not 1 to 128`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r"}}}}, `api: rule "r": limits: is missing`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r", Limits: limits}, {ID: "r", Limits: limits}}}}, `api: rule "r": domain "d" has a rule of this id already`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r", Limits: []LimitSpec{{Limit: -1, Window: "1s"}}}}}}, `api: rule "r": limits[0].limit: "-1" is not between 0 and 2147483648`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r", Limits: []LimitSpec{{Limit: 1, Window: "5"}}}}}}, `api: rule "r": limits[0].window: "5" is not a duration; write a number with a unit, such as 10s, 5m, 1h, 1d`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r", Limits: []LimitSpec{{Limit: 1, Window: "1s", Calendar: &CalendarSpec{Calendar: "day"}}}}}}}, `api: rule "r": limits[0]: key "window" stands here twice`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r", Limits: limits, Mode: &ModeSpec{}}}}}, `api: rule "r": mode: has 0 modes, not 1; write hard, {soft: {over: 10%}} or {elastic: {parent: org, up_to: 150%}}`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r", Limits: limits, Cost: "-1"}}}}, `api: rule "r": cost: "-1" is not between 0 and 2147483648`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r", Limits: limits, IPv6Prefix: -1}}}}, `api: rule "r": ipv6_prefix: "-1" is not between 1 and 128`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r", Limits: limits, Unlimited: true}}}}, `api: rule "r": limits: is not for an unlimited rule, which counts nothing`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r", Limits: limits, Replaces: []string{"s"}}}}}, `api: rule "r": replaces[0]: "s" is not a rule of domain "d"`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r", Limits: []LimitSpec{{Limit: 1}}}}}}, `api: rule "r": limits[0].window: is missing`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r", Limits: limits, When: map[string]ConditionSpec{"a": {}}}}}}, `api: rule "r": when.a: is empty; write at least 1`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r", Limits: limits, When: map[string]ConditionSpec{"a": {AnyOf: []string{"x"}, Absent: true}}}}}}, `api: rule "r": when.a[1]: is a mapping, not text`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r", Limits: limits, When: map[string]ConditionSpec{"a": {AnyOf: []string{"\xff"}}}}}}}, `api: rule "r": when.a: "\xff" is not valid UTF-8`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r", Limits: limits, Per: [][]string{{"u", "u"}}}}}}, `api: rule "r": per[1]: "u" stands here twice`},
	} {
		set, err := Compile("api", c.docs)
		if set != nil || err == nil || err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}
