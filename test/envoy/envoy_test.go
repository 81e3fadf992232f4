package envoy

import (
	"fmt"
	"net"
	"strconv"
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
		if resp.StatusCode != want {
			t.Errorf("request %d: %s", i, resp.Status)
		}
		for name, value := range map[string]string{
			"X-RateLimit-Limit": `5, 5;w=86400;name="per-user"`, "X-RateLimit-Remaining": strconv.Itoa(left), "Limit": "5", "Left": strconv.Itoa(left),
		} {
			if got := resp.Header.Get(name); got != value {
				t.Errorf("request %d: %s is %q, want %q", i, name, got, value)
			}
		}
		untilMidnight := day - int(time.Now().Unix()%day)
		names := []string{"X-RateLimit-Reset", "Reset", "Retry-After"}
		if i < 5 {
			names = names[:2]
		}
		for _, name := range names {
			if got, err := strconv.Atoi(resp.Header.Get(name)); err != nil || got < untilMidnight || got > untilMidnight+10 {
				t.Errorf("request %d: %s is %q, want %d or a little more", i, name, resp.Header.Get(name), untilMidnight)
			}
		}
		if got := resp.Header.Get("X-Envoy-Ratelimited"); (got == "true") != (want == 429) {
			t.Errorf("request %d: x-envoy-ratelimited is %q", i, got)
		}
	}
	if resp := p.get(t, "/", "bob"); resp.StatusCode != 200 || resp.Header.Get("X-RateLimit-Remaining") != "4" {
		t.Errorf("another user: %s %v", resp.Status, resp.Header)
	}
	if resp := p.get(t, "/", "batch"); resp.StatusCode != 200 || resp.Header.Get("X-RateLimit-Limit") != `100000, 100000;w=86400;name="batch"` {
		t.Errorf("a user with a limit of his own: %s %v", resp.Status, resp.Header)
	}
	if resp := p.get(t, "/", ""); resp.StatusCode != 200 || resp.Header.Get("X-RateLimit-Limit") != "" {
		t.Errorf("nobody: %s %v", resp.Status, resp.Header)
	}
	// Two descriptors: the tighter one is told, and a denied one lets no other be counted.
	if resp := p.get(t, "/export", "carol"); resp.Header.Get("X-RateLimit-Limit") != `5, 5;w=86400;name="per-user", 100000;w=86400;name="exports"` {
		t.Errorf("an export: %s %v", resp.Status, resp.Header)
	}
	if resp := p.get(t, "/export", "alice"); resp.StatusCode != 429 {
		t.Errorf("an export by alice: %s", resp.Status)
	}
	if resp := p.get(t, "/export", ""); resp.Header.Get("X-RateLimit-Remaining") != "99998" {
		t.Errorf("the second export: %s %v", resp.Status, resp.Header)
	}
}

// While no node answers, Envoy's own policy decides.
func TestNobodyAnswers(t *testing.T) {
	binary(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := silent.Addr().String()
	if err := silent.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		deny string
		want int
	}{{"false", 200}, {"true", 500}} {
		t.Run("failure_mode_deny "+tc.deny, func(t *testing.T) {
			t.Parallel()
			p := startProxy(t, []string{nobody}, "failure_mode_deny: false", "failure_mode_deny: "+tc.deny)
			for i := range 7 {
				if resp := p.get(t, "/", "alice"); resp.StatusCode != tc.want {
					t.Errorf("request %d: %s, want %d", i, resp.Status, tc.want)
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
			if resp.StatusCode == 429 {
				return nil
			}
		}
		return fmt.Errorf("alice is not limited")
	}
	process.Await(t, patience, limited)
	n.Kill()
	process.Await(t, patience, func() error {
		if resp := p.get(t, "/", "alice"); resp.StatusCode != 200 {
			return fmt.Errorf("%s", resp.Status)
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
				case resp.StatusCode == 200:
					passed.Add(1)
				case resp.StatusCode == 429:
					denied.Add(1)
				default:
					t.Errorf("%s: %s", user, resp.Status)
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
