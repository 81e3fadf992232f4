package e2e

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

const commandDescriptors = `
domain: edge
descriptors:
  - key: user
    rate_limit: {name: per-user, unit: day, requests_per_unit: 3}
    descriptors:
      - {key: path, value: "/files/*", share_threshold: true, rate_limit: {unit: year, requests_per_unit: 2}}
      - {key: path, rate_limit: {unit: year, requests_per_unit: 5, replaces: [{name: per-user}]}}
  - {key: user, value: root, rate_limit: {unlimited: true}}
  - {key: route, value: export, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: only, descriptors: [{key: deeper, rate_limit: {unit: year, requests_per_unit: 1}}]}
`

// What an operator sees and does at a terminal in a domain of descriptors, on two nodes that own
// about half of the counters each.
func TestCommandsOnDescriptors(t *testing.T) {
	testform.NotInBrief(t)
	t.Parallel()
	const header = `RULE +LIMIT +PER +ALGORITHM +LEFT +RESETS +NEXT +OWNER\n`
	for _, counting := range []struct {
		args   []string
		denied string // what is left of three when two and two were asked for
	}{{nil, "1"}, {[]string{"--rls-count-denied"}, "0"}} {
		t.Run(strings.Join(counting.args, " "), func(t *testing.T) {
			args := append([]string{"--rules", writeRules(t, commandDescriptors), "--peer-timeout", "4s"}, counting.args...)
			first := process.Start(t, append(args, "--id", "first")...)
			second := process.Start(t, append(args, "--id", "second", "--etcd", first.Etcd)...)
			process.AwaitMembers(t, process.Patience, first, second)
			for i, s := range []struct {
				args string
				code int
				want string // a regular expression
			}{
				{"check --descriptor user=bob --cost 2", 0, `allowed\n\nDESCRIPTOR +CODE +NAME +LIMIT +LEFT +RESETS\nuser=bob +OK +per-user +3 per day +1 +in .*\n`},
				{"check --descriptor user=bob --cost 2", 1, `denied\n\nDESCRIPTOR .*\nuser=bob +OVER_LIMIT +per-user +3 per day +0 +in .*\n`},
				{"check --descriptor user=bob --cost 2 --peek", 1, `denied \(only looked\)\n\nDESCRIPTOR +RULE +APPLIES +WHY\nuser=bob +user +yes +-\n\n` +
					header + `user +3 per day +user +fixed_window +` + counting.denied + ` +in .* +in .* +(first|second)\n`},
				{"status --descriptor user=bob", 0, header + `user +3 per day +user +fixed_window +` + counting.denied + ` +in .*(first|second)\n`},
				{"check --descriptor user=bob --cost -9", 0, `allowed\n\n.*\nuser=bob +OK +per-user +3 per day +3 .*\n`},
				{"status --descriptor user=bob", 0, header + `user +3 per day +user +fixed_window +3 .* now +(first|second)\n`},
				// Two descriptors: one replaces the other's limit.
				{"explain --descriptor user=bob --descriptor user=bob,path=/x --cost 5", 0, `allowed \(only looked\)\n\nDESCRIPTOR +RULE +APPLIES +WHY\n` +
					`user=bob +user +no +another limit of the request replaces "per-user"\nuser=bob,path=/x +user.path +yes +-\n\n` +
					header + `user.path +5 per 365d +user, path +fixed_window +5 .* now +(first|second)\n`},
				{"explain --descriptor user=bob,path=/x --cost 6", 0, `denied \(only looked\)\n\n.*\n.*\n\n.*\nuser.path +5 per 365d +user, path +fixed_window +5 .* never +(first|second)\n`},
				// Shared by all that fit.
				{"check --descriptor user=bob,path=/files/a", 0, `allowed\n\n.*\nuser=bob,path=/files/a +OK +- +2 per year +1 .*\n`},
				{"check --descriptor user=bob,path=/files/b", 0, `allowed\n\n.*\nuser=bob,path=/files/b +OK +- +2 per year +0 .*\n`},
				{"check --descriptor user=bob,path=/files/c", 1, `denied\n\n.*\nuser=bob,path=/files/c +OVER_LIMIT +- +2 per year +0 .*\n`},
				{"reset --descriptor user=bob,path=/files/zzz", 0, header + `user.path_/files/\* +2 per 365d +user +fixed_window +2 .*\n\n1 counter was reset\n`},
				{"check --descriptor user=bob,path=/files/c", 0, `allowed\n\n.*\nuser=bob,path=/files/c +OK +- +2 per year +1 .*\n`},
				// A comma in a value, and an empty value.
				{`check --descriptor user=a\,b,path=`, 0, `allowed\n\n.*\nuser=a\\,b,path= +OK +- +5 per year +4 .*\n`},
				{`status --descriptor user=a\,b,path=`, 0, header + `user.path +5 per 365d +user, path +fixed_window +4 .*\n`},
				{"check --descriptor user=root", 0, `allowed\n\n.*\nuser=root +OK +- +unlimited +- +-\n`},
				{"explain --descriptor user=root", 0, `allowed \(only looked\)\n\n.*\nuser=root +user_root +yes +is unlimited\n`},
				{"check --descriptor route=export --cost 3", 0, `allowed\n\n.*\nroute=export +OK +- +1 per year +0 .*\n`},
				{"explain --descriptor route=export --cost 3", 0, `allowed \(only looked\)\n\n.*\nroute=export +route_export +yes +is a shadow: it never denies\n\n.*\nroute_export +1 per 365d +- .* never \(not enforced\) +(first|second)\n`},
				// What leads nowhere.
				{"check --descriptor only=x", 0, `allowed\n\n.*\nonly=x +OK +- +none +- +-\n`},
				{"explain --descriptor only=x", 0, `allowed \(only looked\)\n\n.*\nonly=x +- +no +"only" has no rate_limit; below stand "deeper"\n`},
				{"explain --descriptor user=bob,verb=GET", 0, `allowed \(only looked\)\n\n.*\nuser=bob,verb=GET +- +no +"user" has no descriptor for "verb=GET"; below stand "path_/files/\*", "path"\n`},
				{"explain --descriptor route=other", 0, `(?s).*the file has no descriptor for "route=other"; below stand "user", "user_root", "route_export", "only"\n`},
				{"status --descriptor only=x", 0, `these descriptors have no limit\n`},
				{"reset --descriptor only=x", 0, `these descriptors have no limit\n`},
				// Mistakes.
				{"check --descriptor user", 2, `(?s).*--descriptor: "user": "user" is not KEY=VALUE, such as user=bob.*`},
				{"check --descriptor user=bob path=/x", 2, `(?s).*unexpected argument "path=/x": --descriptor takes the place of KEY=VALUE; put the entry into a descriptor.*`},
				{"check user=bob", 2, `(?s).*domain: "edge" has descriptors.*--descriptor.*`},
				{"reset --descriptor user=bob --rule user", 2, `(?s).*--rule: "user" cannot be given with --descriptor.*`},
				{"explain --descriptor user=bob --domain other", 2, `(?s).*domain: "other" has no descriptors; ask with an identifier and attributes\n`},
			} {
				n := []*process.Node{first, second}[i%2]
				args := append(strings.Fields(s.args), "--node", n.GRPC, "--timeout", "10s")
				if !strings.Contains(s.args, "--domain") {
					args = append(args, "--domain", "edge")
				}
				cmd := exec.Command(process.Binary(t), args...)
				out, _ := cmd.CombinedOutput()
				if code := cmd.ProcessState.ExitCode(); code != s.code || !regexp.MustCompile(`^(?:`+s.want+`)$`).Match(out) {
					t.Errorf("weir %s: exit code %d, want %d\n%s\nwant %s", s.args, code, s.code, out, s.want)
				}
			}
			_, list := weirRules(t, first, "", "list")
			for _, want := range []string{
				`user +user=\* +user +3 per 1d fixed_window`, `user\.path_/files/\* +user=\*,path=/files/\* +user +2 per 365d fixed_window`,
				`user\.path +user=\*,path=\* +user\+path +5 per`, `route_export +route=export +- +1 per`, `only\.deeper +only=\*,deeper=\* +only\+deeper`,
			} {
				if !regexp.MustCompile(`edge +` + want).MatchString(list) {
					t.Errorf("no %s in\n%s", want, list)
				}
			}
			if strings.Contains(first.Log()+second.Log(), "only looks") {
				t.Error("a command was warned about as if it were an Envoy")
			}
		})
	}
}
