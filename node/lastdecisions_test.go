package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/decisionlog"
	"github.com/weirlimit/weir/ring"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

func lineAt(at time.Time, user, rule string, allowed bool) string {
	l := decisionlog.Line{
		Version: 1, Time: at, Node: "a", API: "check", Domain: "default", Keys: "clear", Allowed: allowed, Source: "owner",
		Descriptors: []decisionlog.Descriptor{{
			Entries: []decisionlog.Entry{{Key: "user", Value: user}, {Key: "endpoint", Value: "/posts"}}, Tokens: 1, Allowed: allowed,
			Limits: []decisionlog.Limit{{Rule: rule, Counter: strings.Repeat("0", 32), Allowed: allowed}},
		}},
	}
	return string(l.AppendTo(nil))
}

// The last decisions about an identifier are found, the newest first, and no others: not those of another domain or identifier, nor
// a line that is cut off.
func TestLastDecisions(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	var log strings.Builder
	for i := range 3 * maxLastDecisions {
		log.WriteString(lineAt(at.Add(time.Duration(i)*time.Second), fmt.Sprintf("u%d", i%2), "posts", i%3 != 0))
	}
	log.WriteString(strings.Replace(lineAt(at, "u1", "posts", true), `"domain":"default"`, `"domain":"other"`, 1))
	log.WriteString(lineAt(at, "u1", "posts", true)[:40])
	list := lastDecisionsOf([]byte(log.String()), "default", "user", "u1")
	if len(list) != maxLastDecisions {
		t.Fatalf("%d decisions", len(list))
	}
	for i, d := range list {
		second := 3*maxLastDecisions - 1 - 2*i
		if !d.At.Equal(at.Add(time.Duration(second)*time.Second)) || d.Endpoint != "/posts" || d.Allowed != (second%3 != 0) || d.Tokens != 1 || (d.Rule == "posts") == d.Allowed {
			t.Errorf("decision %d is %+v", i, d)
		}
	}
	if list := lastDecisionsOf([]byte(log.String()), "default", "user", "u"); len(list) != 0 {
		t.Errorf("%d decisions of a user whose name begins others", len(list))
	}
	path := filepath.Join(t.TempDir(), "decisions.log")
	if err := os.WriteFile(path, []byte("first line\nsecond\nthird\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int64]string{8: "third\n", 100: "first line\nsecond\nthird\n", 3: ""} {
		if tail, err := tailOf(path, most); err != nil || string(tail) != want {
			t.Errorf("the last %d bytes: %q, %v; want %q", most, tail, err, want)
		}
	}
}

// A caller waits for a moment while the log is read for another one, and the log is read into memory of its size.
func TestLastDecisionsForOneAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "decisions.log")
	if err := os.WriteFile(path, []byte(strings.Repeat(lineAt(time.Unix(1_700_000_000, 0), "u", "posts", true), 5000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, most := range []int64{1 << 20, maxTail} {
		if tail, err := tailOf(path, most); err != nil || len(tail) == 0 || int64(cap(tail)) > min(most, int64(len(tail))+1000) {
			t.Errorf("%d bytes at most: %d in a buffer of %d, %v", most, len(tail), cap(tail), err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		d := newDecisionTail(&Options{DecisionLog: path, DecisionLogKeys: decisionlog.Clear}, ring.Hasher{})
		req := &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: "u"}
		d.reading <- struct{}{}
		begun := time.Now()
		if all, err := d.LastDecisions(t.Context(), req); status.Code(err) != codes.ResourceExhausted || len(all.List) > 0 || time.Since(begun) != tailPatience {
			t.Errorf("while another caller reads: %d decisions, %v, after %v", len(all.List), err, time.Since(begun))
		}
		time.AfterFunc(tailPatience/2, func() { <-d.reading })
		for range 2 {
			if all, err := d.LastDecisions(t.Context(), req); err != nil || len(all.List) != maxLastDecisions {
				t.Errorf("after another caller: %d decisions, %v", len(all.List), err)
			}
		}
	})
}
