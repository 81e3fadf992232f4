package node

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/rules"
	envoyrules "github.com/weirlimit/weir/rules/envoy"
	"github.com/weirlimit/weir/ui"
)

const inForce = "domain: default\nrules:\n  - id: posts\n    per: [user]\n    limits: [{limit: 10, window: 1h}]\n  - id: all\n    limits: [{limit: 30, window: 1h}]\n"

func newTestReplayer(t *testing.T) *replayer {
	t.Helper()
	set, err := rules.Parse("rules", []byte(inForce))
	if err != nil {
		t.Fatal(err)
	}
	return newReplayer(func() *rules.State { return &rules.State{Set: set} }, nil)
}

// aliceLog has 20 requests of alice and 5 of bob, in JSON.
func aliceLog() string {
	var log strings.Builder
	for i := range 25 {
		user := "alice"
		if i%5 == 4 {
			user = "bob"
		}
		fmt.Fprintf(&log, `{"time":%d,"user":%q,"endpoint":"/posts"}`+"\n", 1_700_000_000+i, user)
	}
	return log.String()
}

// A changed rule takes its place among those in force, and the result says what differs, by rule and key.
func TestReplayOfAChangedRule(t *testing.T) {
	const changed = "domain: default\nrules:\n  - id: posts\n    per: [user]\n    limits: [{limit: 4, window: 1h}]\n"
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	if _, err := zip.Write([]byte(aliceLog())); err != nil || zip.Close() != nil {
		t.Fatal(err)
	}
	for name, log := range map[string]string{"plain": aliceLog() + "not JSON\n", "gzip": packed.String()} {
		res, err := newTestReplayer(t).Replay(t.Context(), ui.Backtest{Rules: changed, Format: "json", Log: strings.NewReader(log)})
		if err != nil {
			t.Fatal(name, err)
		}
		if res.Denied != 17 || res.DeniedNow != 10 || res.NewlyDenied != 7 || res.NewlyAllowed != 0 || res.Allowed != 8 || len(res.Moments) == 0 {
			t.Errorf("%s: %+v", name, res)
		}
		if posts := res.Rules[0]; posts.ID != "posts" || posts.Denied != 17 || posts.DeniedNow != 10 || len(posts.Top) == 0 || posts.Top[0].Key != "user=alice" || posts.Top[0].Count != 16 {
			t.Errorf("%s: %+v", name, posts)
		}
		if len(res.Rules) != 2 || res.Rules[1].ID != "all" || res.Rules[1].Lines != 25 {
			t.Errorf("%s: the other rule in force is %+v", name, res.Rules)
		}
		if broken := strings.Contains(strings.Join(res.Notes, " "), "Left out: 1 line, not of the format"); broken != (name == "plain") {
			t.Errorf("%s: notes %q", name, res.Notes)
		}
		if strings.Contains(strings.Join(res.Notes, " "), "Without") {
			t.Errorf("%s: fields that no rule asks about are missed: %q", name, res.Notes)
		}
	}
}

// Calls of Envoy in a decision log are held against descriptors, as this node reads them; other logs have none, and a note says so.
func TestReplayOfDescriptors(t *testing.T) {
	how := rules.Options{Envoy: envoyrules.Options{Algorithm: algorithms.SlidingWindow}}
	const edge = "domain: edge\ndescriptors:\n  - {key: user, rate_limit: {unit: minute, requests_per_unit: 6}}\n"
	set, err := how.Parse("rules", []byte(edge+"---\n"+inForce))
	if err != nil {
		t.Fatal(err)
	}
	p := newReplayer(func() *rules.State { return &rules.State{Set: set} }, nil)
	var log strings.Builder
	for i := range 10 { // on both sides of a minute: a fixed window has 5 on each
		fmt.Fprintf(&log, `{"time":"2026-03-02T09:%02d:%02d.5Z","api":"envoy","domain":"edge","keys":"clear","source":"owner","allowed":%t,"descriptors":[{"tokens":1,"entries":[{"key":"user","value":"a"}]}]}`+"\n",
			(55+i)/60, (55+i)%60, i < 7)
	}
	res, err := p.Replay(t.Context(), ui.Backtest{Format: "decisions", Log: strings.NewReader(log.String())})
	if err != nil || res.Denied != 3 || res.DeniedNow != 3 || res.NewlyDenied != 0 || res.NoRule != 0 || len(res.Notes) > 0 {
		t.Errorf("as they are: %+v, %v", res, err)
	}
	res, err = p.Replay(t.Context(), ui.Backtest{Rules: strings.Replace(edge, "6}", "3}", 1), Format: "decisions", Log: strings.NewReader(log.String())})
	if err != nil || res.Denied != 6 || res.DeniedNow != 3 || res.NewlyDenied != 3 || len(res.Rules) != 1 || res.Rules[0].Domain != "edge" || res.Rules[0].Top[0].Key != "user=a" {
		t.Errorf("changed: %+v, %v", res, err)
	}
	res, err = p.Replay(t.Context(), ui.Backtest{Format: "json", Log: strings.NewReader(aliceLog())})
	if want := "Descriptors of Envoy in the domain edge are left out: only a decision log has the calls of Envoy."; err != nil || strings.Join(res.Notes, " ") != want || res.DeniedNow != 10 {
		t.Errorf("of another format: %+v, %v", res, err)
	}
}

// A line far ahead of its time is left out, and a note says so in words.
func TestReplayOfALineAhead(t *testing.T) {
	first, rest, _ := strings.Cut(aliceLog(), "\n")
	log := first + "\n" + `{"time":4000000000,"user":"alice","endpoint":"/posts"}` + "\n" + rest
	res, err := newTestReplayer(t).Replay(t.Context(), ui.Backtest{Format: "json", Log: strings.NewReader(log)})
	if want := "Left out: 1 line, more than a day later than most of those after it; the first is log:2."; err != nil || strings.Join(res.Notes, " ") != want {
		t.Errorf("%+v, %v", res, err)
	}
}

// A note says which attributes of the rules the log lacks.
func TestReplayMissesAttributes(t *testing.T) {
	const changed = "domain: default\nrules:\n  - id: cards\n    when: {plan: free}\n    per: [card]\n    limits: [{limit: 4, window: 1h}]\n"
	res, err := newTestReplayer(t).Replay(t.Context(), ui.Backtest{Rules: changed, Format: "json", Map: []string{"plan=$plan", "card=$card"}, Log: strings.NewReader(aliceLog())})
	if err != nil || strings.Join(res.Notes, " ") != "Without card: 25 lines. Without plan: 25 lines." {
		t.Errorf("%+v, %v", res, err)
	}
}

// What cannot be replayed is refused with a reason.
func TestReplayRefuses(t *testing.T) {
	pack := func(b []byte) []byte {
		var packed bytes.Buffer
		zip := gzip.NewWriter(&packed)
		_, err := zip.Write(b)
		if errors.Join(err, zip.Close()) != nil {
			t.Fatal(err)
		}
		return packed.Bytes()
	}
	for _, row := range []struct {
		b    ui.Backtest
		code codes.Code
		want string
	}{
		{ui.Backtest{Rules: "domain: default\nrules: [{id: a, limits: [{limit: 1, window: 1 fortnight}]}]", Log: strings.NewReader("")}, codes.InvalidArgument, "window"},
		{ui.Backtest{Format: "xml", Log: strings.NewReader("")}, codes.InvalidArgument, `"xml"`},
		{ui.Backtest{Map: []string{"user"}, Log: strings.NewReader("")}, codes.InvalidArgument, `"user" is not`},
		{ui.Backtest{Format: "json", Log: bytes.NewReader(pack(pack([]byte(aliceLog()))))}, codes.InvalidArgument, "twice"},
		{ui.Backtest{Format: "json", Log: bytes.NewReader(pack(make([]byte, 3<<20)))}, codes.InvalidArgument, "512 MiB unpacked"},
	} {
		synctest.Test(t, func(t *testing.T) { // pauses take no time
			p := newTestReplayer(t)
			p.most = 2 << 20
			if _, err := p.Replay(t.Context(), row.b); status.Code(err) != row.code || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v, want %v with %q", err, row.code, row.want)
			}
		})
	}
}

// A replay ends with its caller and after its time, and there is one at a time.
func TestReplayEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestReplayer(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := p.Replay(ctx, ui.Backtest{Format: "json", Log: endless{}})
			ended <- err
		}()
		time.Sleep(time.Second)
		if _, err := p.Replay(t.Context(), ui.Backtest{Format: "json", Log: strings.NewReader(aliceLog())}); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a second replay: %v", err)
		}
		cancel()
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Errorf("cancelled: %v", err)
		}
		if _, err := p.Replay(t.Context(), ui.Backtest{Format: "json", Log: endless{}}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("after its time: %v", err)
		}
		if _, err := p.Replay(t.Context(), ui.Backtest{Format: "json", Log: strings.NewReader(aliceLog())}); err != nil {
			t.Errorf("after the others: %v", err)
		}
	})
}

// endless is a log whose next lines come in a second.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	time.Sleep(time.Second)
	return copy(b, aliceLog()), nil
}
