package envoy

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/test/process"
)

// What the example promises: five requests of a user pass, and the sixth is denied. Each
// answer tells the limit, as Envoy and as Weir tell it.
func TestLimits(t *testing.T) {
	binary(t)
	n := process.Start(t, "--rules", examples+"rules.yaml", "--rls-headers", "limit,left,reset")
	p := startProxy(t, []string{n.GRPC})
	p.healthy(t, 2)
	const day = 24 * 60 * 60
	for i := range 8 {
		left := max(0, 4-i)
		resp := p.get(t, "/", "alice")
		want := 200
		if i >= 5 {
			want = 429
		}
		if resp.status != want {
			t.Errorf("request %d: %d", i, resp.status)
		}
		for name, value := range map[string]string{
			"X-RateLimit-Limit": `5, 5;w=86400;name="per-user"`, "X-RateLimit-Remaining": strconv.Itoa(left), "Limit": "5", "Left": strconv.Itoa(left),
		} {
			if got := resp.header.Get(name); got != value {
				t.Errorf("request %d: %s is %q, want %q", i, name, got, value)
			}
		}
		untilMidnight := day - int(time.Now().Unix()%day)
		names := []string{"X-RateLimit-Reset", "Reset", "Retry-After"}
		if i < 5 {
			names = names[:2]
		}
		for _, name := range names {
			if got, err := strconv.Atoi(resp.header.Get(name)); err != nil || got < untilMidnight || got > untilMidnight+10 {
				t.Errorf("request %d: %s is %q, want %d or a little more", i, name, resp.header.Get(name), untilMidnight)
			}
		}
		if got := resp.header.Get("X-Envoy-Ratelimited"); (got == "true") != (want == 429) {
			t.Errorf("request %d: x-envoy-ratelimited is %q", i, got)
		}
	}
	// Clients that send invalid UTF-8 are limited like others.
	for i := range 6 {
		if resp := p.get(t, "/", "\xff"+strings.Repeat("\xfe", 5000)); (resp.status == 429) != (i == 5) {
			t.Errorf("request %d with odd bytes: %d %v", i, resp.status, resp.header)
		}
	}
	if resp := p.get(t, "/", "bob"); resp.status != 200 || resp.header.Get("X-RateLimit-Remaining") != "4" {
		t.Errorf("another user: %d %v", resp.status, resp.header)
	}
	if resp := p.get(t, "/", "batch"); resp.status != 200 || resp.header.Get("X-RateLimit-Limit") != `100000, 100000;w=86400;name="batch"` {
		t.Errorf("a user with a limit of his own: %d %v", resp.status, resp.header)
	}
	if resp := p.get(t, "/", ""); resp.status != 200 || resp.header.Get("X-RateLimit-Limit") != "" {
		t.Errorf("no caller: %d %v", resp.status, resp.header)
	}
	// Two descriptors: the tighter one is told, and a denied one lets no other be counted.
	if resp := p.get(t, "/export", "carol"); resp.header.Get("X-RateLimit-Limit") != `5, 5;w=86400;name="per-user", 100000;w=86400;name="exports"` {
		t.Errorf("an export: %d %v", resp.status, resp.header)
	}
	if resp := p.get(t, "/export", "alice"); resp.status != 429 {
		t.Errorf("an export by alice: %d", resp.status)
	}
	if resp := p.get(t, "/export", ""); resp.header.Get("X-RateLimit-Remaining") != "99998" {
		t.Errorf("the second export: %d %v", resp.status, resp.header)
	}
}

// Rules in Weir's own format limit Envoy, too: its descriptors are attributes.
func TestRulesOfItsOwn(t *testing.T) {
	binary(t)
	file := filepath.Join(t.TempDir(), "rules.yaml")
	text := "domain: edge\nrules:\n  - {id: per-user, per: [user], limits: [{limit: 2, window: 10d, algorithm: fixed_window}]}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	n := process.Start(t, "--rules", file)
	p := startProxy(t, []string{n.GRPC})
	for i, want := range []int{200, 200, 429} {
		resp := p.get(t, "/", "alice")
		if limit := resp.header.Get("X-RateLimit-Limit"); resp.status != want || limit != `2, 2;w=864000;name="per-user"` {
			t.Errorf("request %d: %d %q", i, resp.status, limit)
		}
	}
}

// While no node answers, Envoy's own policy decides.
func TestNoNodeAnswers(t *testing.T) {
	binary(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	unreachable := silent.Addr().String()
	if err := silent.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		deny string
		want int
	}{{"false", 200}, {"true", 500}} {
		t.Run("failure_mode_deny "+tc.deny, func(t *testing.T) {
			t.Parallel()
			p := startProxy(t, []string{unreachable}, "failure_mode_deny: false", "failure_mode_deny: "+tc.deny)
			for i := range 7 {
				if resp := p.get(t, "/", "alice"); resp.status != tc.want {
					t.Errorf("request %d: %d, want %d", i, resp.status, tc.want)
				}
			}
		})
	}
}

// Weir goes, and comes back: requests pass meanwhile, and are limited again.
func TestWeirComesBack(t *testing.T) {
	binary(t)
	n := process.Start(t, "--rules", examples+"rules.yaml", "--data-dir", t.TempDir())
	p := startProxy(t, []string{n.GRPC}, "interval: 5s\n          no", "interval: 0.2s\n          no", "no_traffic_interval: 5s", "no_traffic_interval: 0.2s")
	limited := func() error {
		for range 6 {
			resp, err := p.call("/", "alice")
			if err != nil {
				t.Fatal(err)
			}
			if resp.status == 429 {
				return nil
			}
		}
		return fmt.Errorf("alice is not limited")
	}
	process.Await(t, patience, limited)
	n.Kill()
	process.Await(t, patience, func() error {
		if resp := p.get(t, "/", "alice"); resp.status != 200 {
			return fmt.Errorf("status %d", resp.status)
		}
		return nil
	})
	n.Restart()
	process.Await(t, patience, limited)
}

// One of two nodes is killed under load. failure_mode_deny would turn every error that
// Envoy sees into a 500: there is none.
func TestOneOfTwoNodesIsKilled(t *testing.T) {
	binary(t)
	store := process.StartEtcd(t)
	start := func() *process.Node {
		return process.Start(t, "--rules", examples+"rules.yaml", "--etcd", store.Endpoint)
	}
	a, b := start(), start()
	process.AwaitMembers(t, patience, a, b)
	p := startProxy(t, []string{a.GRPC, b.GRPC}, "failure_mode_deny: false", "failure_mode_deny: true")
	p.healthy(t, 2)

	var passed, denied, sent atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				user := fmt.Sprintf("user-%d-%d", worker, i/8) // eight requests each, of which five may pass
				resp, err := p.call("/", user)
				switch sent.Add(1); {
				case err != nil:
					t.Errorf("%s: %v", user, err)
				case resp.status == 200:
					passed.Add(1)
				case resp.status == 429:
					denied.Add(1)
				default:
					t.Errorf("%s: %d", user, resp.status)
				}
			}
		})
	}
	count := func(more int64) {
		t.Helper()
		target := sent.Load() + more
		process.Await(t, patience, func() error {
			if n := sent.Load(); n < target {
				return fmt.Errorf("%d of %d requests", n, target)
			}
			return nil
		})
	}
	count(200)
	b.Kill()
	count(400)
	close(stop)
	wg.Wait()
	if denied.Load() == 0 || passed.Load() == 0 {
		t.Errorf("%d passed, %d denied: want both", passed.Load(), denied.Load())
	}
	t.Logf("%d passed, %d denied", passed.Load(), denied.Load())
}
