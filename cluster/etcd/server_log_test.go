package etcd

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/zap"
)

// What etcd says comes into the node's log, one level lower, and not without end.
func TestEtcdLog(t *testing.T) {
	var out bytes.Buffer
	node := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo}))
	log := newLastWords().logger(node).With(zap.String("member", "weir"))
	log.Info("started")
	log.Warn("slow fdatasync")
	if out.Len() > 0 {
		t.Errorf("logged %s", out.String())
	}
	for range 100 {
		log.Error("failed to apply", zap.Int("index", 7))
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	want := `"level":"WARN","msg":"failed to apply","component":"etcd","index":7,"member":"weir"}`
	if len(lines) != loggedOf || !strings.HasSuffix(lines[0], want) {
		t.Errorf("%d lines, the first %s, want %s", len(lines), lines[0], want)
	}
}
