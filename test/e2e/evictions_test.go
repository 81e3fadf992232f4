package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/test/process"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// A node that drops counters in use says so in its health at once. Package node tests its log, which says so once a minute.
func TestEvictionsAreSaid(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	rules := "domain: default\nrules:\n  - {id: user, per: [user], limits: [{limit: 10, window: 1d}]}\n"
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	n := process.Start(t, "--rules", file, "--counter-memory", "8MiB")
	if h := getHealth(t, n); h.Degraded {
		t.Fatalf("with room: %q", h.Reasons)
	}
	conn, err := grpc.NewClient(n.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	limiter := weirv1.NewRateLimiterClient(conn)
	for user := 0; n.Metric(t, "weir_counters_evicted_total") == 0; {
		batch := new(weirv1.RateLimitBatchRequest)
		for range 1000 {
			batch.Requests = append(batch.Requests, &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: strconv.Itoa(user)})
			user++
		}
		if _, err := limiter.CheckRateLimitBatch(t.Context(), batch); err != nil || user > 1_000_000 {
			t.Fatalf("%d users: %v", user, err)
		}
	}
	const says = "counters in use were dropped"
	if h := getHealth(t, n); !h.Degraded || !strings.Contains(strings.Join(h.Reasons, "\n"), says) {
		t.Errorf("health: degraded %v, %q", h.Degraded, h.Reasons)
	}
}
