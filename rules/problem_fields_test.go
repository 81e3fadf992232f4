package rules

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir/algorithms"
)

// drainingAlgorithms is how messages list the algorithms that can book delays.
var drainingAlgorithms = strings.Join(algorithms.NamesOf(algorithms.Algorithm.Drains), ", ")

// The problems of fields that TestRuleProblems leaves out, such as several sets in per, mode, cost, blocks of addresses and
// calendar windows.
func TestFieldProblems(t *testing.T) {
	for _, c := range []struct{ rule, want string }{
		{`{id: r, per: [[u], v], ` + oneLimit + `}`, `f.yaml:3:22: rule "r": per[1]: "v" is not a list`},
		{`{id: r, per: [u, [v]], ` + oneLimit + `}`, `f.yaml:3:20: rule "r": per[1]: is a list, not text`},
		{`{id: r, per: [[u], []], ` + oneLimit + `}`, `f.yaml:3:22: rule "r": per[1]: is empty; write at least 1`},
		{`{id: r, per: [[u, v], [v, u]], ` + oneLimit + `}`, `f.yaml:3:25: rule "r": per[1]: is a second set of u, v; keep one`},
		{`{id: r, per: [[u, u], [v]], ` + oneLimit + `}`, `f.yaml:3:21: rule "r": per[0][1]: "u" stands here twice, first in line 3`},
		{`{id: r, per: [[a], [b]], when: {b: {absent: true}}, ` + oneLimit + `}`, `f.yaml:3:3: rule "r": per[1]: has "b", which when wants absent; no request would match`},
		{`{id: r, unlimited: yes, ` + oneLimit + `}`, `f.yaml:3:22: rule "r": unlimited: "yes" is not true or false`},
		{`{id: r, unlimited: true, ` + oneLimit + `}`, `f.yaml:3:36: rule "r": limits: is not for an unlimited rule, which counts nothing`},
		{`{id: r, unlimited: true, per: [u], enforce: 5, cost: 1, mode: hard, max_delay: 1s, on_failure: deny, ipv6_prefix: 56}`, "f.yaml:3:33: rule \"r\": per: is not for an unlimited rule, which counts nothing\nf.yaml:3:47: rule \"r\": enforce: is not for an unlimited rule, which counts nothing\nf.yaml:3:56: rule \"r\": cost: is not for an unlimited rule, which counts nothing\nf.yaml:3:65: rule \"r\": mode: is not for an unlimited rule, which counts nothing\nf.yaml:3:82: rule \"r\": max_delay: is not for an unlimited rule, which counts nothing\nf.yaml:3:98: rule \"r\": on_failure: is not for an unlimited rule, which counts nothing\nf.yaml:3:117: rule \"r\": ipv6_prefix: is not for an unlimited rule, which counts nothing"},
		{`{id: r, unlimited: false}`, `f.yaml:3:3: rule "r": limits: is missing`},
		{`{id: r, unlimitd: true}`, "f.yaml:3:3: rule \"r\": limits: is missing\nf.yaml:3:11: rule \"r\": unknown key \"unlimitd\"; did you mean \"unlimited\"?"},
		{`{id: r, replaces: s, ` + oneLimit + `}`, `f.yaml:3:21: rule "r": replaces: "s" is not a list`},
		{`{id: r, replaces: [], ` + oneLimit + `}`, `f.yaml:3:21: rule "r": replaces: is empty; write at least 1`},
		{`{id: r, replaces: [s, s], ` + oneLimit + `}`, `f.yaml:3:25: rule "r": replaces[1]: "s" stands here twice, first in line 3`},
		{`{id: r, replaces: [1], ` + oneLimit + `}`, `f.yaml:3:22: rule "r": replaces[0]: "1" is a number, not text; put it in quotes`},
		{`{id: r, on_failure: alow, ` + oneLimit + `}`, `f.yaml:3:23: rule "r": on_failure: "alow" is not a failure policy; known are allow, local, deny; did you mean "allow"?`},
		{`{id: r, on_failure: true, ` + oneLimit + `}`, `f.yaml:3:23: rule "r": on_failure: "true" is a boolean, not text; put it in quotes`},
		{`{id: r, on_failure: , ` + oneLimit + `}`, `f.yaml:3:23: rule "r": on_failure: is empty, not text`},
		{`{id: r, durability: stric, ` + oneLimit + `}`, `f.yaml:3:23: rule "r": durability: "stric" is not a durability; known are relaxed, strict; did you mean "strict"?`},
		{`{id: r, durability: false, ` + oneLimit + `}`, `f.yaml:3:23: rule "r": durability: "false" is a boolean, not text; put it in quotes`},
		{`{id: r, durability: , ` + oneLimit + `}`, `f.yaml:3:23: rule "r": durability: is empty, not text`},
		{`{id: r, unlimited: true, durability: strict}`, `f.yaml:3:40: rule "r": durability: is not for an unlimited rule, which counts nothing`},
		{`{id: r, enforce: 101, ` + oneLimit + `}`, `f.yaml:3:20: rule "r": enforce: "101" is not between 0 and 100`},
		{`{id: r, enforce: -1, ` + oneLimit + `}`, `f.yaml:3:20: rule "r": enforce: "-1" is not between 0 and 100`},
		{`{id: r, enforce: 50%, ` + oneLimit + `}`, `f.yaml:3:20: rule "r": enforce: "50%" is not a whole number; write decimal digits only, such as 100`},
		{`{id: r, enforce: 0.5, ` + oneLimit + `}`, `f.yaml:3:20: rule "r": enforce: "0.5" is not a whole number; write decimal digits only, such as 100`},
		{`{id: r, mode: soft, ` + oneLimit + `}`, `f.yaml:3:17: rule "r": mode: "soft" is not a mode; write hard, {soft: {over: 10%}} or {elastic: {parent: org, up_to: 150%}}`},
		{`{id: r, mode: , ` + oneLimit + `}`, `f.yaml:3:17: rule "r": mode: is empty, not a mode; write hard, {soft: {over: 10%}} or {elastic: {parent: org, up_to: 150%}}`},
		{`{id: r, mode: 1, ` + oneLimit + `}`, `f.yaml:3:17: rule "r": mode: "1" is not a mode; write hard, {soft: {over: 10%}} or {elastic: {parent: org, up_to: 150%}}`},
		{`{id: r, mode: [hard], ` + oneLimit + `}`, `f.yaml:3:17: rule "r": mode: is a list, not a mode; write hard, {soft: {over: 10%}} or {elastic: {parent: org, up_to: 150%}}`},
		{`{id: r, mode: {}, ` + oneLimit + `}`, `f.yaml:3:17: rule "r": mode: has 0 modes, not 1; write hard, {soft: {over: 10%}} or {elastic: {parent: org, up_to: 150%}}`},
		{`{id: r, mode: {hard: true}, ` + oneLimit + `}`, `f.yaml:3:18: rule "r": mode: unknown key "hard"; known are soft, elastic`},
		{`{id: r, mode: {soft: {over: 10%}, elastic: {parent: s, up_to: 150%}}, ` + oneLimit + `}`, `f.yaml:3:17: rule "r": mode: has 2 modes, not 1; write hard, {soft: {over: 10%}} or {elastic: {parent: org, up_to: 150%}}`},
		{`{id: r, mode: {soft: 10%}, ` + oneLimit + `}`, `f.yaml:3:24: rule "r": mode.soft: "10%" is not a mapping`},
		{`{id: r, mode: {soft: {}}, ` + oneLimit + `}`, `f.yaml:3:24: rule "r": mode.soft.over: is missing`},
		{`{id: r, mode: {soft: {over: 10}}, ` + oneLimit + `}`, `f.yaml:3:31: rule "r": mode.soft.over: "10" is not a percentage; write a whole number and a sign, such as 10%`},
		{`{id: r, mode: {soft: {over: 1.5%}}, ` + oneLimit + `}`, `f.yaml:3:31: rule "r": mode.soft.over: "1.5%" is not a percentage; write a whole number and a sign, such as 10%`},
		{`{id: r, mode: {soft: {over: 0%}}, ` + oneLimit + `}`, `f.yaml:3:31: rule "r": mode.soft.over: "0%" is not between 1% and 1000%`},
		{`{id: r, mode: {soft: {over: 1001%}}, ` + oneLimit + `}`, `f.yaml:3:31: rule "r": mode.soft.over: "1001%" is not between 1% and 1000%`},
		{`{id: r, mode: {soft: {over: 99999999999999999999%}}, ` + oneLimit + `}`, `f.yaml:3:31: rule "r": mode.soft.over: "99999999999999999999%" is not between 1% and 1000%`},
		{`{id: r, mode: {elastic: {parent: s, up_to: 100%}}, ` + oneLimit + `}`, `f.yaml:3:46: rule "r": mode.elastic.up_to: "100%" is not between 101% and 1000%`},
		{`{id: r, mode: {elastic: {up_to: 1001%}}, ` + oneLimit + `}`, "f.yaml:3:27: rule \"r\": mode.elastic.parent: is missing\nf.yaml:3:35: rule \"r\": mode.elastic.up_to: \"1001%\" is not between 101% and 1000%"},
		{`{id: r, mode: {elastic: {parent: s}}, ` + oneLimit + `}`, `f.yaml:3:27: rule "r": mode.elastic.up_to: is missing`},
		{`{id: r, mode: {elastic: {parent: 1, up_to: 101%}}, ` + oneLimit + `}`, `f.yaml:3:36: rule "r": mode.elastic.parent: "1" is a number, not text; put it in quotes`},
		{`{id: r, mode: {soft: {over: 100%}}, limits: [{limit: 2147483647, window: 1s}]}`, `f.yaml:3:17: rule "r": mode: lets 2147483647 through above limits[0], but limit: 4294967294 is not between 0 and 2147483648`},
		{`{id: r, mode: {soft: {over: 1%}}, limits: [{limit: 10000, window: 1s, algorithm: sliding_window_log}]}`, `f.yaml:3:17: rule "r": mode: lets 100 through above limits[0], but limit: 10100 is not between 0 and 10000, the most that sliding_window_log keeps`},
		{`{id: r, mode: {soft: {over: 10%}}, limits: [{limit: 10, burst: 2147483647, window: 1s, algorithm: gcra}]}`, `f.yaml:3:17: rule "r": mode: lets 214748364 through above limits[0], but burst: 2362232011 is not between 0 and 2147483648`},
		{`{id: r, max_delay: 5, ` + oneLimit + `}`, `f.yaml:3:22: rule "r": max_delay: "5" is not a duration; write a number with a unit, such as 10s, 5m, 1h, 1d`},
		{`{id: r, max_delay: -1s, ` + oneLimit + `}`, `f.yaml:3:22: rule "r": max_delay: "-1s" is not between 0s and 366d`},
		{`{id: r, max_delay: 367d, ` + oneLimit + `}`, `f.yaml:3:22: rule "r": max_delay: "367d" is not between 0s and 366d`},
		{`{id: r, max_delay: 1s, ` + oneLimit + `}`, `f.yaml:3:22: rule "r": max_delay: limits[0] is of sliding_window, which has no delays; those that have are ` + drainingAlgorithms},
		{`{id: r, max_delay: 1s, limits: [{limit: 1, window: 1s, algorithm: gcra}, {limit: 1, window: 1s, algorithm: fixed_window}]}`, `f.yaml:3:22: rule "r": max_delay: limits[1] is of fixed_window, which has no delays; those that have are ` + drainingAlgorithms},
		{`{id: r, max_delay: 366d, limits: [{limit: 2147483648, window: 10ms, algorithm: gcra}]}`, `f.yaml:3:22: rule "r": limits[0]: max_delay: 8784h0m0s lets more than 2147483648 tokens be booked: 2147483648, and 2147483648 per 10ms ahead`},
		{`{id: r, cost: -1, ` + oneLimit + `}`, `f.yaml:3:17: rule "r": cost: "-1" is not between 0 and 2147483648`},
		{`{id: r, cost: 1.5, ` + oneLimit + `}`, `f.yaml:3:17: rule "r": cost: "1.5" is not a whole number; write decimal digits only, such as 100`},
		{`{id: r, cost: 2147483649, ` + oneLimit + `}`, `f.yaml:3:17: rule "r": cost: "2147483649" is not between 0 and 2147483648`},
		{`{id: r, cost: "5", ` + oneLimit + `}`, `f.yaml:3:17: rule "r": cost: "5" is text, not a whole number; leave out the quotes`},
		{`{id: r, cost: "", ` + oneLimit + `}`, `f.yaml:3:17: rule "r": cost: the attribute's name "" has 0 bytes, not 1 to 64`},
		{`{id: r, cost: true, ` + oneLimit + `}`, `f.yaml:3:17: rule "r": cost: "true" is not a whole number; write decimal digits only, such as 100`},
		{`{id: r, cost: [size], ` + oneLimit + `}`, `f.yaml:3:17: rule "r": cost: is a list, not a whole number`},
		{`{id: r, per: [ip], ipv6_prefix: 0, ` + oneLimit + `}`, `f.yaml:3:35: rule "r": ipv6_prefix: "0" is not between 1 and 128`},
		{`{id: r, per: [ip], ipv6_prefix: 129, ` + oneLimit + `}`, `f.yaml:3:35: rule "r": ipv6_prefix: "129" is not between 1 and 128`},
		{`{id: r, per: [user], ipv6_prefix: 56, ` + oneLimit + `}`, `f.yaml:3:37: rule "r": ipv6_prefix: is for rules with "ip" in per, which this one has not`},
		{`{id: r, when: {ip: 10.0.0.0/33}, ` + oneLimit + `}`, `f.yaml:3:22: rule "r": when.ip: "10.0.0.0/33" is not a block of addresses; write one such as 10.0.0.0/8 or 2001:db8::/32`},
		{`{id: r, when: {ip: 10.0.0.1/8}, ` + oneLimit + `}`, `f.yaml:3:22: rule "r": when.ip: "10.0.0.1/8" has an address within the block; write 10.0.0.0/8`},
		{`{id: r, when: {ip: [10.0.0.0/8, "2001:db8::1/32"]}, ` + oneLimit + `}`, `f.yaml:3:35: rule "r": when.ip[1]: "2001:db8::1/32" has an address within the block; write 2001:db8::/32`},
		{`{id: r, when: {ip: "::ffff:10.0.0.0/104"}, ` + oneLimit + `}`, `f.yaml:3:22: rule "r": when.ip: "::ffff:10.0.0.0/104" holds IPv4 addresses mapped into IPv6, which are taken for IPv4; write it as a block of IPv4`},
		{`{id: r, when: {ip: "10.*.1"}, ` + oneLimit + `}`, `f.yaml:3:22: rule "r": when.ip: "10.*.1" has a '*' before its end; it may only end a prefix, as in "/api/*"; write all else as an expression, such as re:/api/[^/]*/posts`},
		{`{id: r, limits: [{limit: 1, window: {}, algorithm: fixed_window}]}`, `f.yaml:3:39: rule "r": limits[0].window.calendar: is missing`},
		{`{id: r, limits: [{limit: 1, window: {calendar: month}}]}`, `f.yaml:3:20: rule "r": limits[0]: calendar: month/UTC is not for sliding_window, only for fixed_window`},
		{`{id: r, limits: [{limit: 1, window: {calendar: moon}, algorithm: fixed_window}]}`, `f.yaml:3:39: rule "r": limits[0].window: calendar: "moon" is not one of [minute hour day week month quarter year]`},
		{`{id: r, limits: [{limit: 1, window: {calendar: month, timezone: Europe/Pariss}, algorithm: fixed_window}]}`, `f.yaml:3:39: rule "r": limits[0].window: timezone: "Europe/Pariss" is not an IANA time zone such as Europe/Paris`},
		{`{id: r, limits: [{limit: 1, window: {calendar: month, timezone: Local}, algorithm: fixed_window}]}`, `f.yaml:3:39: rule "r": limits[0].window: timezone: "Local" is not an IANA time zone such as Europe/Paris`},
		{`{id: r, limits: [{limit: 1, window: {calendar: month, anchor: 0}, algorithm: fixed_window}]}`, `f.yaml:3:65: rule "r": limits[0].window.anchor: "0" is not between 1 and 31`},
		{`{id: r, limits: [{limit: 1, window: {calendar: month, anchor: 32}, algorithm: fixed_window}]}`, `f.yaml:3:65: rule "r": limits[0].window.anchor: "32" is not between 1 and 31`},
		{`{id: r, limits: [{limit: 1, window: {calendar: week, anchor: 8}, algorithm: fixed_window}]}`, `f.yaml:3:39: rule "r": limits[0].window: anchor: 8 is not between 1 and 7`},
		{`{id: r, limits: [{limit: 1, window: {calendar: day, anchor: 1}, algorithm: fixed_window}]}`, `f.yaml:3:39: rule "r": limits[0].window: anchor: 1 is not for a day, which has none`},
		{`{id: r, limits: [{limit: 1, window: {calendar: day, tz: UTC}, algorithm: fixed_window}]}`, `f.yaml:3:55: rule "r": limits[0].window: unknown key "tz"; known are calendar, timezone, anchor`},
		{`{id: r, limits: [{limit: 1, window: {calendar: day}, algorithm: fixed_window}, {limit: 2, window: {calendar: day, timezone: UTC}, algorithm: fixed_window}]}`, `f.yaml:3:82: rule "r": limits[1]: is a second limit of fixed_window over day/UTC; keep one`},
		{`{id: r, limits: [{limit: 1, window: 1s, buckets: 10}]}`, `f.yaml:3:20: rule "r": limits[0]: buckets: 10 is not for sliding_window, which has none`},
		{`{id: r, limits: [{limit: 1, window: 1s, buckets: 0, algorithm: sliding_window_buckets}]}`, `f.yaml:3:52: rule "r": limits[0].buckets: "0" is not between 1 and 3600`},
		{`{id: r, limits: [{limit: 1, window: 1s, buckets: 3601, algorithm: sliding_window_buckets}]}`, `f.yaml:3:52: rule "r": limits[0].buckets: "3601" is not between 1 and 3600`},
		{`{id: r, limits: [{limit: 1, window: 1s, buckets: 5, algorithm: sliding_window_buckets}, {limit: 1, window: 1s, algorithm: sliding_window_buckets}]}`, `f.yaml:3:91: rule "r": limits[1]: is a second limit of sliding_window_buckets over 1s; keep one`},
		{`{id: r, limits: [{limit: 10001, window: 1s, algorithm: sliding_window_log}]}`, `f.yaml:3:20: rule "r": limits[0]: limit: 10001 is not between 0 and 10000, the most that sliding_window_log keeps`},
	} {
		refused(t, oneRule(c.rule)+"- {id: s, "+oneLimit+"}\n", c.want)
	}
}

// Uses of these fields that are no problem.
func TestFieldsWithoutProblems(t *testing.T) {
	for _, rule := range []string{
		`{id: r, mode: hard, ` + oneLimit + `}`,
		`{id: r, mode: {soft: {over: 1000%}}, limits: [{limit: 195225786, window: 1s}]}`,
		`{id: r, mode: {elastic: {parent: s, up_to: 101%}}, ` + oneLimit + `}`,
		`{id: r, max_delay: 0s, ` + oneLimit + `}`,
		`{id: r, max_delay: 1ns, limits: [{limit: 1, window: 1s, algorithm: token_bucket}, {limit: 1, window: 1s, algorithm: gcra}, {limit: 1, window: 1s, algorithm: leaky_bucket}]}`,
		`{id: r, per: [[ip], [user]], ipv6_prefix: 1, ` + oneLimit + `}`,
		`{id: r, ipv6_prefix: 64, ` + oneLimit + `}`,
		`{id: r, cost: a b, ` + oneLimit + `}`,
		`{id: r, limits: [{limit: 1, window: {calendar: day}, algorithm: fixed_window}, {limit: 2, window: {calendar: day, timezone: Asia/Tokyo}, algorithm: fixed_window}, {limit: 2, window: 1d, algorithm: fixed_window}]}`,
		`{unlimited: true, id: r, when: {ip: 10.0.0.0/8}, replaces: [s], enabled: false}`,
	} {
		parse(t, oneRule(rule)+"- {id: s, "+oneLimit+"}\n")
	}
}
