package e2e

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/weirlimit/weir/test/process"
)

// What an operator sees and does at a terminal, on two nodes that own about half of
// the counters each.
func TestStatusExplainReset(t *testing.T) {
	rules := writeRules(t, `
domain: default
rules:
  - {id: posts, when: {endpoint: /posts}, per: [user], limits: [{limit: 3, window: 366d}, {limit: 9, window: 366d, algorithm: token_bucket}]}
  - {id: likes, when: {endpoint: /likes}, per: [user], limits: [{limit: 5, window: 366d}]}
  - {id: everybody, when: {endpoint: "*"}, limits: [{limit: 1000, window: {calendar: year, timezone: Asia/Tokyo}, algorithm: fixed_window}]}
`)
	first := process.Start(t, "--id", "first", "--rules", rules)
	second := process.Start(t, "--id", "second", "--rules", rules, "--etcd", first.Etcd)
	process.AwaitMembers(t, process.Patience, first, second)
	for _, s := range []struct {
		args string
		code int
		want string // regular expressions, one per line
	}{
		{"check user=alice endpoint=/posts --cost 2", 0, `
allowed  user=alice endpoint=/posts cost 2
rule     posts: 3 per 366d, 1 remaining, resets in .*
source   owner \(the node that keeps the counter\)
`},
		{"explain user=alice endpoint=/posts --cost 2", 0, `
denied   user=alice endpoint=/posts cost 2, retry after .* \(only looked\)
rule     posts: 3 per 366d, 1 remaining, resets in .*
source   owner \(the node that keeps the counter\)

RULE       APPLIES  WHY
posts      yes      -
likes      no       endpoint is "/posts", not "/likes"
everybody  yes      -

RULE +LIMIT +PER +ALGORITHM +LEFT +RESETS +NEXT +OWNER
posts +3 per 366d +user +sliding_window +1 +in .* +in .* +(first|second)
posts +9 per 366d +user +token_bucket +7 +in .* +now +(first|second)
everybody +1000 per year \(Asia/Tokyo\) +- +fixed_window +998 +in .* +now +(first|second)
`},
		{"explain user=alice endpoint=/posts --domain shop", 0, `
allowed  user=alice endpoint=/posts \(only looked\)
rule     none
source   no_rule \(nothing limits this request\)

domain "shop" has no rules
`},
		{"status user=alice", 0, `
RULE +LIMIT +PER +ALGORITHM +LEFT +RESETS +NEXT +OWNER
posts +3 per 366d +user +sliding_window +1 +in .* +now +(first|second)
posts +9 per 366d +user +token_bucket +7 +in .* +now +(first|second)
likes +5 per 366d +user +sliding_window +5 +- +now +(first|second)
`},
		{"check user=alice endpoint=/posts --cost -1", 0, `
allowed  user=alice endpoint=/posts cost -1
rule     posts: 3 per 366d, 2 remaining, resets in .*
source   owner \(the node that keeps the counter\)
`},
		{"reset user=alice --rule posts", 0, `
RULE +LIMIT +PER +ALGORITHM +LEFT +RESETS +NEXT +OWNER
posts +3 per 366d +user +sliding_window +3 +- +now +(first|second)
posts +9 per 366d +user +token_bucket +9 +- +now +(first|second)

2 counters were reset
`},
		{"reset --rule everybody", 0, `
RULE +LIMIT +PER +ALGORITHM +LEFT +RESETS +NEXT +OWNER
everybody +1000 per year \(Asia/Tokyo\) +- +fixed_window +1000 +- +now +(first|second)

1 counter was reset
`},
		{"reset tenant=t", 0, `
no rule counts by this identifier
`},
		{"reset user=alice --rule nothing", 2, `
weir: node .*: rule_id: domain "default" has no rule "nothing"
`},
		{"explain", 2, `
weir: missing identifier: add KEY=VALUE, such as user=alice
Run "weir explain --help" for how to use it\.
`},
	} {
		for _, n := range []*process.Node{first, second} {
			if strings.HasPrefix(s.args, "check") && n == second {
				continue // once is enough
			}
			cmd := exec.Command(process.Binary(t), strings.Fields(s.args)...)
			cmd.Env = append(cmd.Environ(), "WEIR_NODE="+n.GRPC)
			out, err := cmd.CombinedOutput()
			want := regexp.MustCompile("^" + strings.TrimPrefix(s.want, "\n") + "$")
			if code := exitCode(err); code != s.code || !want.Match(out) {
				t.Errorf("%s: exit code %d\n%s\nwant %d\n%s", s.args, code, out, s.code, s.want)
			}
		}
	}
}
