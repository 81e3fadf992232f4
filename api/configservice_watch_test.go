package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/inmemory"
	"github.com/weirlimit/weir/rules"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

func briefWatch(m *weirv1.WatchRulesResponse) string {
	parts := []string{fmt.Sprint(m.GetRevision())}
	for _, r := range m.GetRateLimits() {
		parts = append(parts, fmt.Sprintf("%s/%s=%d@%d", r.GetDomain(), r.GetId(), r.GetLimit(), r.GetRevision()))
	}
	for _, r := range m.GetDeleted() {
		parts = append(parts, "-"+r.GetDomain()+"/"+r.GetId())
	}
	if !m.GetComplete() {
		parts = append(parts, "...")
	}
	return strings.Join(parts, " ")
}

// change edits the rules of a fixture with a store.
func (f *fixture) change(t *testing.T, edit rules.Edit) {
	t.Helper()
	_, next, err := f.config.store.Change(t.Context(), false, edit)
	if err != nil {
		t.Fatal(err)
	}
	for f.config.store.State().Revision < next.Revision { // Change waits for that, but not for ever
		runtime.Gosched()
	}
}

func limitOf(id string, limit int64) rules.Spec {
	return rules.Spec{ID: id, Limits: []rules.LimitSpec{{Limit: limit, Window: "1m"}}}
}

func TestWatchRules(t *testing.T) {
	f, _, c := newConfig(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	all, err := c.WatchRules(ctx, &weirv1.WatchRulesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := c.WatchRules(ctx, &weirv1.WatchRulesRequest{Domain: "d"})
	if err != nil {
		t.Fatal(err)
	}
	expect := func(stream weirv1.RateLimiterConfig_WatchRulesClient, want string) {
		t.Helper()
		m, err := stream.Recv()
		if err != nil || briefWatch(m) != want || m.GetRulesHash() != f.config.store.State().Set.Hash() {
			t.Errorf("got %s, %v, want %s", briefWatch(m), err, want)
		}
	}
	expect(all, "0")
	expect(d, "0")
	f.change(t, rules.Create("d", limitOf("b", 1)))
	expect(all, "1 d/b=1@1")
	expect(d, "1 d/b=1@1")
	f.change(t, rules.Create("d", limitOf("a", 1)))
	expect(all, "2 d/a=1@2")
	expect(d, "2 d/a=1@2")
	f.change(t, rules.Create("e", limitOf("a", 1)))
	expect(all, "3 e/a=1@3")
	expect(d, "3") // the revision, at least
	f.change(t, rules.Update("d", limitOf("b", 5), 0))
	expect(all, "4 d/b=5@4")
	expect(d, "4 d/b=5@4")
	f.change(t, rules.Apply([]rules.Document{{Domain: "d", Rules: []rules.Spec{limitOf("b", 6)}}, {Domain: "e"}}, true))
	expect(all, "5 d/b=6@5 -d/a -e/a")
	expect(d, "5 d/b=6@5 -d/a")

	f.config.Stop()
	for _, stream := range []weirv1.RateLimiterConfig_WatchRulesClient{all, d} {
		_, err := stream.Recv()
		f.isStatus(t, "at the end", err, codes.Unavailable, "the node is stopping; watch another one")
	}
}

// A reader that is slow gets the latest state, and not every one before.
func TestWatchCoalesces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, "domain: d\nrules: []\n")
		withStore(t, f)
		messages := make(chan string)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- f.config.watch(ctx, &weirv1.WatchRulesRequest{}, func(m *weirv1.WatchRulesResponse) error {
				messages <- briefWatch(m) // until a client reads
				return nil
			})
		}()
		synctest.Wait() // until the first state waits to be read
		for i := range int64(50) {
			f.change(t, rules.Create("d", limitOf(fmt.Sprint("r", i), 1)))
			if i > 0 {
				f.change(t, rules.Delete("d", fmt.Sprint("r", i-1), 0))
			}
		}
		if got := <-messages; got != "0" {
			t.Errorf("got %s", got)
		}
		if got := <-messages; got != "99 d/r49=1@98" {
			t.Errorf("got %s", got)
		}
		synctest.Wait()
		cancel()
		select {
		case more := <-messages:
			t.Errorf("got %s as well", more)
		case err := <-done:
			if status.Code(err) != codes.Canceled {
				t.Error(err)
			}
		}
		if f.config.watchers != 0 {
			t.Errorf("%d watchers are left", f.config.watchers)
		}
	})
}

// A large state comes in parts of bounded size.
func TestWatchInParts(t *testing.T) {
	f, _, c := newConfig(t)
	doc := rules.Document{Domain: "d"}
	for i := range 40 {
		spec := limitOf(fmt.Sprintf("r%02d", i), 1)
		for j := range 250 {
			value := rules.ConditionSpec{AnyOf: append(spec.When["x"].AnyOf, fmt.Sprintf("%0200d", j))}
			spec.When = map[string]rules.ConditionSpec{"x": value}
		}
		doc.Rules = append(doc.Rules, spec)
	}
	f.change(t, rules.Apply([]rules.Document{doc}, false))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := c.WatchRules(ctx, &weirv1.WatchRulesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	seen, parts := 0, 0
	for complete := false; !complete; parts++ {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		seen += len(m.GetRateLimits())
		complete = m.GetComplete()
	}
	if seen != 40 || parts != 2 {
		t.Errorf("%d rules in %d parts", seen, parts)
	}

	first, err := c.ListRateLimits(ctx, &weirv1.ListRateLimitsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	second, err := c.ListRateLimits(ctx, &weirv1.ListRateLimitsRequest{PageToken: first.GetNextPageToken()})
	if err != nil || first.GetNextPageToken() == "" || second.GetNextPageToken() != "" || len(first.GetRateLimits())+len(second.GetRateLimits()) != 40 {
		t.Errorf("pages of %d and %d rules, %v", len(first.GetRateLimits()), len(second.GetRateLimits()), err)
	}
}

func TestWatchesAreBounded(t *testing.T) {
	f, _, c := newConfig(t)
	for range maxWatchers {
		if err := f.config.addWatcher(); err != nil {
			t.Fatal(err)
		}
	}
	watch := func() error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := c.WatchRules(ctx, &weirv1.WatchRulesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		return err
	}
	f.isStatus(t, "one too many", watch(), codes.ResourceExhausted, "this node has 100 watches, which is the most")
	f.config.removeWatcher()
	if err := watch(); err != nil {
		t.Error(err)
	}
}

// Over HTTP a watch outlives every time-out of the server, and ends with it.
func TestWatchOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, "domain: d\nrules: []\n")
		withStore(t, f)
		server, listener := f.httpServer(t), inmemory.NewListener()
		served := make(chan error)
		go func() { served <- server.Serve(listener) }()
		client := &http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return listener.DialContext(ctx) },
		}}
		defer client.CloseIdleConnections()
		get := func(path string) *http.Response {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://node"+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			return resp
		}
		refused := get("/v1/rules:watch?domain=" + strings.Repeat("x", 65))
		body, err := io.ReadAll(refused.Body)
		if err != nil || refused.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "domain: 65 bytes are more than 64") {
			t.Errorf("%s: %s, %v", refused.Status, body, err)
		}
		if err := refused.Body.Close(); err != nil {
			t.Error(err)
		}

		resp := get("/v1/rules:watch")
		lines := bufio.NewReader(resp.Body)
		expect := func(revision, id string) {
			t.Helper()
			line, err := lines.ReadString('\n')
			var m struct {
				Revision   string
				RateLimits []struct{ ID string } `json:"rate_limits"`
				Complete   bool
			}
			if err == nil {
				err = json.Unmarshal([]byte(line), &m)
			}
			if err != nil || m.Revision != revision || !m.Complete || id != "" && (len(m.RateLimits) != 1 || m.RateLimits[0].ID != id) {
				t.Errorf("got %q, %v, want %s %s", line, err, revision, id)
			}
		}
		expect("0", "")
		if got := resp.Header.Get("Content-Type"); got != "application/x-ndjson" {
			t.Errorf("content type %s", got)
		}
		for i := range 3 {
			time.Sleep(3 * (bodyTimeout + idleTimeout))
			f.change(t, rules.Create("d", limitOf(fmt.Sprint("r", i), 1)))
			expect(fmt.Sprint(i+1), fmt.Sprint("r", i))
		}
		f.config.Stop()
		if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
			t.Errorf("at the end: %q, %v", rest, err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		client.CloseIdleConnections()
		if err := server.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		const watch = "GET /v1/rules:watch"
		calls, durations := metricsOf(t, f.registry, "weir_calls_total"), metricsOf(t, f.registry, "weir_call_duration_seconds")
		if calls[watch+" 200"].GetCounter().GetValue() != 1 || calls[watch+" 400"].GetCounter().GetValue() != 1 || durations[watch].GetHistogram().GetSampleCount() != 1 {
			t.Errorf("calls %v, durations %v, want a stream without a duration, and a refusal with one", calls, durations)
		}
	})
}
