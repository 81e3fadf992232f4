package node

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// A node accepts requests for the names in its own addresses, though --http-hosts has others only, and logs the first Host that it refuses.
func TestHostsOfOwnAddresses(t *testing.T) {
	t.Parallel()
	var logs bytes.Buffer // read after Run
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	opts := Options{
		ID: "a", GRPC: "127.0.0.1:0", Advertise: "Weir-1.test:9090", HTTP: "0.0.0.0:0", HTTPHosts: []string{"weir.example.com"},
		Insecure: true, EtcdListen: "127.0.0.1:0", DataDir: t.TempDir(),
	}
	ended, ready := make(chan error, 1), make(chan Info, 1)
	go func() {
		ended <- Run(ctx, opts, slog.New(slog.NewTextHandler(&logs, nil)), func(i Info) { ready <- i })
	}()
	var info Info
	select {
	case info = <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(info.HTTP)
	for _, ask := range []struct {
		host string
		want int
	}{
		{"weir-1.test:8080", http.StatusOK}, {"weir.example.com", http.StatusOK}, {"10.0.0.7:8080", http.StatusOK},
		{"first.test:8080", http.StatusForbidden}, {"second.test:8080", http.StatusForbidden},
	} {
		resp, err := http.DefaultClient.Do(asPage(t, http.MethodGet, "http://127.0.0.1:"+port+"/v1/rules", ask.host, ""))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != ask.want {
			t.Errorf("%s: %s, want %d", ask.host, resp.Status, ask.want)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	text := logs.String()
	if strings.Count(text, "add it to --http-hosts") != 1 || !strings.Contains(text, "host=first.test:8080") {
		t.Errorf("the log is\n%s", text)
	}
}

func TestOwnNames(t *testing.T) {
	o := Options{Advertise: "Weir-1.test.:9090", GRPC: "0.0.0.0:9090", HTTP: "weir-1.test:8080", Admin: "admin.test:9091"}
	if got, want := o.ownNames(), []string{"weir-1.test", "admin.test"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	o = Options{Advertise: "[2001:db8::1]:9090", GRPC: ":9090", HTTP: "[::]:8080"}
	if got := o.ownNames(); len(got) > 0 {
		t.Errorf("%q are addresses, or nothing", got)
	}
}
