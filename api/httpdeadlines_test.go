package api

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/internal/inmemory"
	"github.com/weirlimit/weir/rules"
)

// slowRules are rules that take a while to change.
type slowRules struct {
	apitest.FixedRules
	takes time.Duration
}

func (s slowRules) Change(ctx context.Context, _ bool, _ rules.Edit) (old, next *rules.State, err error) {
	select {
	case <-time.After(s.takes):
		return s.State(), s.State(), nil
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// A change that takes longer than the server gives an answer has one all the same.
func TestSlowApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, checkRules)
		for takes, want := range map[time.Duration]int{bodyTimeout + 5*time.Second: 200, time.Hour: 503} {
			f.config = NewConfigServer(slowRules{apitest.FixedRules{Set: f.status.Set}, takes})
			listener, server := inmemory.NewListener(), f.httpServer(t)
			served := make(chan error)
			go func() { served <- server.Serve(listener) }()
			client := &http.Client{Transport: &http.Transport{
				DisableKeepAlives: true,
				DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return listener.DialContext(ctx) },
			}}
			begin := time.Now()
			resp, err := client.Post("http://localhost/v1/rules:apply", "application/json", strings.NewReader(`{"rules":"domain: d\nrules: []\n"}`))
			if err != nil {
				t.Fatalf("%v: %v", takes, err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != want || len(body) == 0 || err != nil {
				t.Errorf("%v: %s %s, %v, want %d", takes, resp.Status, body, err, want)
			}
			if d := time.Since(begin); d != min(takes, applyTimeout) {
				t.Errorf("%v: answered after %v", takes, d)
			}
			_ = server.Close()
			if err := <-served; !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		}
	})
}
