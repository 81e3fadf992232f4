package node

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// A node that is stopped, and one that could not start, leave ports and data
// directory to the next.
func TestRunLeavesNothingBehind(t *testing.T) {
	opts := Options{ID: "a", GRPC: "127.0.0.1:0", HTTP: "127.0.0.1:0", EtcdListen: "127.0.0.1:0", DataDir: t.TempDir()}
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		ready := make(chan Info, 1)
		go func() { ended <- Run(ctx, opts, quiet(), func(i Info) { ready <- i }) }()
		var info Info
		select {
		case info = <-ready:
		case err := <-ended:
			t.Fatal(err)
		}
		for path, want := range map[string]string{
			"/healthz":   "ok\n",
			"/readyz":    "ready\n",
			"/metrics":   "weir_view_number",
			"/v1/health": `"ready":true,"degraded":false,"reasons":[]`,
		} {
			resp, err := http.Get("http://" + info.HTTP + path)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			// protojson puts spaces where it likes.
			text := strings.ReplaceAll(string(body), " ", "")
			if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(text, want) {
				t.Errorf("%s: %s %v\n%s", path, resp.Status, err, body)
			}
		}
		broken := opts
		broken.GRPC, broken.HTTP, broken.Rules = "127.0.0.1:0", "127.0.0.1:0", "/no/such/rules.yaml"
		if err := Run(ctx, broken, quiet(), nil); err == nil || !strings.Contains(err.Error(), "/no/such/rules.yaml") {
			t.Errorf("%v, want an error about the rules", err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("stopped: %v", err)
		}
		opts.GRPC, opts.HTTP = info.GRPC, info.HTTP // the same ports again
	}
}

func TestRunThatIsStoppedBeforeItIsReady(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	opts := Options{GRPC: "127.0.0.1:0", HTTP: "127.0.0.1:0", EtcdListen: "127.0.0.1:0", DataDir: t.TempDir()}
	if err := Run(ctx, opts, quiet(), func(Info) { t.Error("ready") }); err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("%v, want context canceled", err)
	}
}
