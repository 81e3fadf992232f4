package api

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/shard"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

const semanticsRules = `
domain: default
rules:
  - {id: tried, when: {endpoint: /tried}, per: [user], limits: [{limit: 1, window: 1m, algorithm: fixed_window}], enforce: 0}
  - {id: kept, when: {endpoint: /tried, both: "*"}, per: [user], limits: [{limit: 3, window: 1h, algorithm: fixed_window}]}
  - {id: soft, when: {endpoint: /soft}, per: [user], limits: [{limit: 10, window: 1m, algorithm: fixed_window}], mode: {soft: {over: 20%}}}
  - {id: team, when: {endpoint: /elastic}, per: [user], limits: [{limit: 4, window: 1m, algorithm: fixed_window}], mode: {elastic: {parent: org, up_to: 200%}}}
  - {id: org, when: {endpoint: /elastic}, limits: [{limit: 10, window: 1m, algorithm: fixed_window}]}
  - {id: vip, when: {user: boss}, unlimited: true}
  - {id: banned, when: {user: [boss, mallory], endpoint: /secret}, limits: [{limit: 0, window: 1s}]}
  - {id: plain, when: {endpoint: /plain}, per: [user], limits: [{limit: 5, window: 1m, algorithm: fixed_window}]}
  - {id: queue, when: {endpoint: /queue}, limits: [{limit: 4, window: 1s, burst: 3, algorithm: leaky_bucket}]}
  - {id: patient, when: {endpoint: /patient}, limits: [{limit: 4, window: 1s, burst: 90, algorithm: leaky_bucket}], max_delay: 500ms}
  - {id: later, when: {endpoint: /later}, limits: [{limit: 1, window: 1s, algorithm: token_bucket}], max_delay: 2s}
  - {id: bytes, when: {endpoint: /upload}, per: [user], limits: [{limit: 100, window: 1m, algorithm: fixed_window}], cost: size}
  - {id: hybrid, when: {endpoint: /login}, per: [[user], [ip]], limits: [{limit: 2, window: 1m, algorithm: fixed_window}]}
  - {id: monthly, when: {endpoint: /bill}, limits: [{limit: 3, window: {calendar: month, timezone: Europe/Paris}, algorithm: fixed_window}]}
  - {id: shut, when: {endpoint: /shut}, limits: [{limit: 3, window: 1m, algorithm: fixed_window}], on_failure: deny}
  - {id: shared, when: {endpoint: /shut}, limits: [{limit: 7, window: 1m, algorithm: fixed_window}]}
  - {id: strict, when: {endpoint: /plain, tier: gold}, limits: [{limit: 50, window: 1m, algorithm: fixed_window}], replaces: [plain]}
  - {id: slower, when: {endpoint: /two}, limits: [{limit: 2, window: 1s, burst: 3, algorithm: leaky_bucket}]}
  - {id: slow, when: {endpoint: /two}, limits: [{limit: 4, window: 1s, burst: 3, algorithm: leaky_bucket}]}
  - {id: few, when: {endpoint: /two}, limits: [{limit: 2, window: 1m, algorithm: fixed_window}]}
`

// told is brief, with what most answers have nothing of.
func told(r *weirv1.RateLimitResponse) string {
	parts := []string{brief(r)}
	add := func(yes bool, text string) {
		if yes {
			parts = append(parts, text)
		}
	}
	add(r.GetCalendar() != "", "by "+r.GetCalendar())
	add(r.DenialReason != nil && r.GetRetryAfter() == nil, strings.ToLower(strings.TrimPrefix(r.GetDenialReason().String(), "DENIAL_REASON_")))
	add(r.GetAllowed() == (r.DenialReason != nil), "and yet no reason, or one")
	add(r.GetDelay() != nil, "delay "+r.GetDelay().AsDuration().String())
	add(r.GetOverLimit(), "over")
	add(r.GetWouldDeny(), "would deny")
	for _, l := range r.GetLimits() {
		text := "[" + l.GetRuleId()
		if len(l.GetPer()) > 0 {
			text += " per " + strings.Join(l.GetPer(), ",")
		}
		if l.GetShadow() {
			text += " shadow"
		}
		if l.GetAllowed() {
			text += " allowed"
		} else {
			text += " denied"
		}
		if l.GetOverLimit() {
			text += " over"
		}
		parts = append(parts, text+" left "+strconv.Itoa(int(l.GetRemainingTokens()))+"]")
	}
	return strings.Join(parts, " ")
}

func TestSemantics(t *testing.T) {
	const minute = "reset 60 1m0s"
	for name, steps := range map[string][]step{
		"a limit that is not enforced": {
			{0, "user=a endpoint=/tried", "allowed owner tried 1/1m0s left 0 " + minute},
			{0, "user=a endpoint=/tried", "allowed owner tried 1/1m0s left 0 " + minute + " would deny"},
			{0, "user=a endpoint=/tried both=y", "allowed owner kept 3/1h0m0s left 2 reset 3600 1h0m0s would deny [tried per user shadow denied left 0] [kept per user allowed left 2]"},
			{0, "user=a endpoint=/tried both=y cost=3", "denied owner kept 3/1h0m0s left 2 reset 3600 1h0m0s retry 3600 1h0m0s would deny [tried per user shadow denied left 0] [kept per user denied left 2]"},
			{0, "user=b endpoint=/tried both=y cost=4", "denied owner kept 3/1h0m0s left 3 reset 0 0s cost_above_limit would deny [tried per user shadow denied left 1] [kept per user denied left 3]"},
		},
		"soft": {
			{0, "user=a endpoint=/soft cost=10", "allowed owner soft 10/1m0s left 0 " + minute},
			{0, "user=a endpoint=/soft", "allowed owner soft 10/1m0s left 0 " + minute + " over"},
			{0, "user=a endpoint=/soft cost=2", "denied owner soft 10/1m0s left 0 " + minute + " retry 60 1m0s"},
			{0, "user=a endpoint=/soft", "allowed owner soft 10/1m0s left 0 " + minute + " over"},
			{0, "user=a endpoint=/soft", "denied owner soft 10/1m0s left 0 " + minute + " retry 60 1m0s"},
			{0, "user=a endpoint=/soft cost=-3", "allowed owner soft 10/1m0s left 1 " + minute},
		},
		"elastic": {
			{0, "user=a endpoint=/elastic cost=4", "allowed owner team 4/1m0s left 0 " + minute + " [team per user allowed left 0] [org allowed left 6]"},
			{0, "user=a endpoint=/elastic cost=4", "allowed owner team 4/1m0s left 0 " + minute + " over [team per user allowed over left 0] [org allowed left 2]"},
			{0, "user=a endpoint=/elastic", "denied owner team 4/1m0s left 0 " + minute + " retry 60 1m0s [team per user denied left 0] [org allowed left 2]"},
			{0, "user=b endpoint=/elastic cost=3", "denied owner org 10/1m0s left 2 " + minute + " retry 60 1m0s [team per user allowed left 4] [org denied left 2]"},
			{0, "user=b endpoint=/elastic cost=2", "allowed owner org 10/1m0s left 0 " + minute + " [team per user allowed left 2] [org allowed left 0]"},
		},
		"exempt and banned": {
			{0, "user=boss endpoint=/plain cost=6", "allowed unlimited vip 0/0s"},
			{0, "user=boss endpoint=/secret", "denied owner banned 0/1s left 0 reset 0 0s blocked"},
			{0, "user=mallory endpoint=/secret", "denied owner banned 0/1s left 0 reset 0 0s blocked"},
			{0, "user=mallory endpoint=/other", "allowed no_rule"},
		},
		"refunds": {
			{0, "user=a endpoint=/plain cost=-2", "allowed owner plain 5/1m0s left 5 reset 0 0s"},
			{0, "user=a endpoint=/plain cost=5", "allowed owner plain 5/1m0s left 0 " + minute},
			{0, "user=a endpoint=/plain cost=-2 peek", "allowed owner plain 5/1m0s left 2 " + minute},
			{0, "user=a endpoint=/plain", "denied owner plain 5/1m0s left 0 " + minute + " retry 60 1m0s"},
			{0, "user=a endpoint=/plain cost=-2", "allowed owner plain 5/1m0s left 2 " + minute},
			{0, "user=a endpoint=/plain cost=-9", "allowed owner plain 5/1m0s left 5 reset 0 0s"},
		},
		"a queue": {
			{0, "user=a endpoint=/queue", "allowed owner queue 4/1s left 2 reset 1 250ms"},
			{0, "user=a endpoint=/queue", "allowed owner queue 4/1s left 1 reset 1 500ms delay 250ms"},
			{0, "user=a endpoint=/queue", "allowed owner queue 4/1s left 0 reset 1 750ms delay 500ms"},
			{0, "user=a endpoint=/queue", "denied owner queue 4/1s left 0 reset 1 750ms retry 1 250ms"},
			{250 * time.Millisecond, "user=a endpoint=/queue", "allowed owner queue 4/1s left 0 reset 1 750ms delay 500ms"},
		},
		"a queue of half a second": {
			{0, "user=a endpoint=/patient", "allowed owner patient 4/1s left 2 reset 1 250ms"},
			{0, "user=a endpoint=/patient", "allowed owner patient 4/1s left 1 reset 1 500ms delay 250ms"},
			{0, "user=a endpoint=/patient", "allowed owner patient 4/1s left 0 reset 1 750ms delay 500ms"},
			{0, "user=a endpoint=/patient", "denied owner patient 4/1s left 0 reset 1 750ms retry 1 250ms"},
			{250 * time.Millisecond, "user=a endpoint=/patient", "allowed owner patient 4/1s left 0 reset 1 750ms delay 500ms"},
		},
		"two queues and a limit": {
			{0, "user=a endpoint=/two", "allowed owner few 2/1m0s left 1 " + minute + " [slower allowed left 2] [slow allowed left 2] [few allowed left 1]"},
			{0, "user=a endpoint=/two", "allowed owner few 2/1m0s left 0 " + minute + " delay 500ms [slower allowed left 1] [slow allowed left 1] [few allowed left 0]"},
			{0, "user=a endpoint=/two", "denied owner few 2/1m0s left 0 " + minute + " retry 60 1m0s [slower allowed left 1] [slow allowed left 1] [few denied left 0]"},
		},
		"a later turn": {
			{0, "user=a endpoint=/later", "allowed owner later 1/1s left 0 reset 1 1s"},
			{0, "user=a endpoint=/later", "allowed owner later 1/1s left 0 reset 2 2s delay 1s"},
			{0, "user=a endpoint=/later", "allowed owner later 1/1s left 0 reset 3 3s delay 2s"},
			{0, "user=a endpoint=/later", "denied owner later 1/1s left 0 reset 3 3s retry 1 1s"},
		},
		"a cost that is an attribute": {
			{0, "user=a endpoint=/upload size=60", "allowed owner bytes 100/1m0s left 40 " + minute},
			{0, "user=a endpoint=/upload size=20 cost=2", "allowed owner bytes 100/1m0s left 0 " + minute},
			{0, "user=a endpoint=/upload size=0", "allowed owner bytes 100/1m0s left 0 " + minute},
			{0, "user=a endpoint=/upload", "denied owner bytes 100/1m0s left 0 " + minute + " retry 60 1m0s"},
			{0, "user=b endpoint=/upload size=101", "denied owner bytes 100/1m0s left 100 reset 0 0s cost_above_limit"},
		},
		"two sets of attributes": {
			{0, "user=a endpoint=/login ip=10.0.0.1", "allowed owner hybrid 2/1m0s left 1 " + minute + " [hybrid per ip allowed left 1] [hybrid per user allowed left 1]"},
			{0, "user=b endpoint=/login ip=10.0.0.1:99", "allowed owner hybrid 2/1m0s left 0 " + minute + " [hybrid per ip allowed left 0] [hybrid per user allowed left 1]"},
			{0, "user=c endpoint=/login ip=::ffff:10.0.0.1", "denied owner hybrid 2/1m0s left 0 " + minute + " retry 60 1m0s [hybrid per ip denied left 0] [hybrid per user allowed left 2]"},
			{0, "user=c endpoint=/login", "allowed owner hybrid 2/1m0s left 1 " + minute},
		},
		"a calendar": { // a bubble begins on 2000-01-01 at 01:00 in Paris
			{0, "user=a endpoint=/bill cost=3", "allowed owner monthly 3/0s left 0 reset 2674800 743h0m0s by month/Europe/Paris"},
			{0, "user=a endpoint=/bill", "denied owner monthly 3/0s left 0 reset 2674800 743h0m0s retry 2674800 743h0m0s by month/Europe/Paris"},
		},
		"a rule that replaces another": {
			{0, "user=a endpoint=/plain cost=5", "allowed owner plain 5/1m0s left 0 " + minute},
			{0, "user=a endpoint=/plain tier=gold", "allowed owner strict 50/1m0s left 49 " + minute},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, semanticsRules)
				start := time.Now()
				for _, s := range steps {
					time.Sleep(s.at - time.Since(start))
					if got := told(f.check(t, s.request)); got != s.want {
						t.Errorf("after %v, %s\ngot  %s\nwant %s", s.at, s.request, got, s.want)
					}
				}
			})
		})
	}
}

// The failure policy of a rule: the router has applied it, and the answer says so.
func TestFailurePolicies(t *testing.T) {
	f := newFixture(t, semanticsRules)
	f.silent = func(take shard.Take) bool { return take.OnFailure == shard.FailClosed }
	if got, want := told(f.check(t, "user=a endpoint=/shut")), "denied fail_closed shut 3/1m0s undecided [shut denied left 0] [shared allowed"; !strings.HasPrefix(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	f.silent = func(shard.Take) bool { return true }
	if got, want := told(f.check(t, "user=a endpoint=/shut")), "denied fail_closed shut 3/1m0s undecided [shut denied left 0] [shared allowed left 0]"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	f = newFixture(t, strings.ReplaceAll(semanticsRules, "on_failure: deny", "on_failure: local"))
	f.source = shard.Local
	if got := f.check(t, "user=a endpoint=/plain"); got.GetSource() != weirv1.Source_SOURCE_LOCAL || got.GetRemainingTokens() != 4 {
		t.Errorf("local: %v", got)
	}
}

// What no limit holds leaves the limits of the next item of a batch as they are.
func TestExemptInABatch(t *testing.T) {
	f := newFixture(t, semanticsRules)
	resp, err := f.server().CheckRateLimitBatch(t.Context(), &weirv1.RateLimitBatchRequest{Requests: []*weirv1.RateLimitRequest{
		request("user=boss endpoint=/plain"), request("user=a endpoint=/bill"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"vip", "monthly"} {
		if got := resp.GetResponses()[i].GetRuleId(); got != want {
			t.Errorf("item %d is decided by %q, want %s", i, got, want)
		}
	}
}

func TestReasonOfADenial(t *testing.T) {
	f := newFixture(t, semanticsRules)
	f.check(t, "user=a endpoint=/plain")
	for cost, want := range map[string]weirv1.DenialReason{
		"5": weirv1.DenialReason_DENIAL_REASON_LIMIT_REACHED, // all of it, but one is gone
		"6": weirv1.DenialReason_DENIAL_REASON_COST_ABOVE_LIMIT,
	} {
		if got := f.check(t, "user=a endpoint=/plain cost="+cost); got.GetDenialReason() != want {
			t.Errorf("cost %s: %v, want %v", cost, got, want)
		}
	}
}

func TestInvalidCost(t *testing.T) {
	f := newFixture(t, semanticsRules)
	for value, want := range map[string]string{
		"many":       `attributes: attribute "size" is the cost of rule "bytes": "many" is not a whole number between 0 and 2147483648`,
		"-1":         `attributes: attribute "size" is the cost of rule "bytes": "-1" is not a whole number between 0 and 2147483648`,
		"1073741825": `attributes: attribute "size" is the cost of rule "bytes": 1073741825 times 2 tokens are more than 2147483648`,
	} {
		_, err := f.server().CheckRateLimit(t.Context(), request("user=a endpoint=/upload cost=2 size="+value))
		refused(t, err, want)
	}
}
