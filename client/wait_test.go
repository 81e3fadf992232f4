package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/client/embedded"
	"github.com/weirlimit/weir/rules"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// embed returns a Limiter of one rule per user.
func embed(t *testing.T, limits string, fields ...string) *embedded.Limiter {
	t.Helper()
	l, err := embedded.New(fmt.Sprintf("domain: default\nrules:\n- {id: r, per: [user], limits: [{%s}]%s}\n",
		limits, strings.Join(append([]string{""}, fields...), ", ")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// deciding is a Checker that decides by a function.
type deciding func(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error)

func (f deciding) Check(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
	return f(ctx, req)
}

// wouldBeLate reports whether err is a denial because of a deadline.
func wouldBeLate(err error) bool {
	var denied *client.DeniedError
	return errors.As(err, &denied) && denied.Late && errors.Is(err, context.DeadlineExceeded)
}

// A user is allowed exactly when there is room, by a window or in turn.
func TestWaitIsExact(t *testing.T) {
	for _, tc := range []struct{ limits, fields, want string }{
		{"limit: 2, window: 1m, algorithm: sliding_window_log", "", "[0s 0s 1m0s 1m0s 2m0s]"},
		{"limit: 2, window: 1m, algorithm: fixed_window", "", "[0s 0s 1m0s 1m0s 2m0s]"},
		{"limit: 1, window: 1s, algorithm: gcra", "", "[0s 1s 2s 3s 4s]"},
		{"limit: 1, window: 1s, burst: 2, algorithm: token_bucket", "max_delay: 1s", "[0s 0s 1s 2s 3s]"},
		{"limit: 1, window: 1s, burst: 10, algorithm: leaky_bucket", "", "[0s 1s 2s 3s 4s]"},
	} {
		t.Run(tc.limits, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, start := embed(t, tc.limits, tc.fields), time.Now()
				var got []time.Duration
				var mu sync.Mutex
				var wg sync.WaitGroup
				for range 5 {
					wg.Go(func() {
						if r, err := l.Wait(t.Context(), request("alice")); err != nil || !r.GetAllowed() {
							t.Errorf("%v, %v", r, err)
						}
						mu.Lock()
						defer mu.Unlock()
						got = append(got, time.Since(start))
					})
				}
				wg.Wait()
				if fmt.Sprint(got) != tc.want {
					t.Errorf("allowed after %v, want %s", got, tc.want)
				}
			})
		})
	}
}

// A waiting caller checks no more often than it has to.
func TestWaitChecksWhenThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, asked := embed(t, "limit: 1, window: 1m"), 0
		c := deciding(func(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
			asked++
			return l.Check(ctx, req)
		})
		for range 2 {
			if _, err := client.Wait(t.Context(), c, request("alice")); err != nil {
				t.Fatal(err)
			}
		}
		if asked != 3 {
			t.Errorf("asked %d times, want 3", asked)
		}
	})
}

// Any number of waiting callers stay within the limit, and none waits beyond its deadline. A caller is
// denied only once it is certain that its deadline is too early.
func TestWaitNeverAdmitsAboveTheLimit(t *testing.T) {
	const window = time.Minute
	rapid.Check(t, func(rt *rapid.T) {
		most := rapid.IntRange(1, 5).Draw(rt, "limit")
		ms := rapid.IntRange(0, 300_000)
		begins := rapid.SliceOfN(ms, 1, 30).Draw(rt, "begins")
		patience := rapid.SliceOfN(ms, len(begins), len(begins)).Draw(rt, "patience")
		synctest.Test(t, func(t *testing.T) {
			l := embed(t, fmt.Sprintf("limit: %d, window: %v, algorithm: sliding_window_log", most, window))
			var mu sync.Mutex
			var passed []time.Time
			var wg sync.WaitGroup
			for i := range begins {
				wg.Go(func() {
					time.Sleep(time.Duration(begins[i])*time.Millisecond + 1)
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(patience[i])*time.Millisecond+1)
					defer cancel()
					deadline, _ := ctx.Deadline()
					_, err := l.Wait(ctx, request("alice"))
					var denied *client.DeniedError
					mu.Lock()
					defer mu.Unlock()
					switch {
					case time.Now().After(deadline):
						rt.Errorf("%d ended %v after its deadline: %v", i, time.Since(deadline), err)
					case err == nil:
						passed = append(passed, time.Now())
					case !errors.As(err, &denied) || !denied.Late:
						rt.Errorf("%d: %v", i, err)
					case !time.Now().Add(denied.Answer.GetRetryAfter().AsDuration()).After(deadline):
						rt.Errorf("%d: %v, although there is time left", i, err)
					}
				})
			}
			wg.Wait()
			slices.SortFunc(passed, time.Time.Compare)
			for i := most; i < len(passed); i++ {
				if gap := passed[i].Sub(passed[i-most]); gap < window {
					rt.Errorf("%d passed within %v: %v", most+1, gap, passed)
				}
			}
		})
	})
}

func TestWaitEndsAtOnce(t *testing.T) {
	soon := func(t *testing.T) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		t.Cleanup(cancel)
		return ctx
	}
	for _, tc := range []struct {
		name, limits, fields string
		cost                 int64
		late                 bool
		want                 string
	}{
		{"late", "limit: 1, window: 1m, algorithm: sliding_window_log", "", 1, true, `denied by rule "r": the turn comes in 1m0s, after the deadline`},
		{"late turn", "limit: 1, window: 1m, burst: 9, algorithm: leaky_bucket", "", 1, true, `denied by rule "r": the turn comes in 1m0s, after the deadline`},
		{"cost", "limit: 1, window: 1m", "", 2, false, `denied by rule "r": it costs more than the limit`},
		{"blocked", "limit: 0, window: 1m", "", 1, false, `denied by rule "r": no wait helps`},
		{"invalid", "limit: 1, window: 1m", "", 1 << 40, false, "tokens_requested: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, start := embed(t, tc.limits, tc.fields), time.Now()
				if _, err := l.Check(t.Context(), request("alice")); err != nil {
					t.Fatal(err)
				}
				req := request("alice")
				req.TokensRequested = tc.cost
				answer, err := l.Wait(soon(t), req)
				if err == nil || !strings.Contains(err.Error(), tc.want) || wouldBeLate(err) != tc.late {
					t.Errorf("%v, %v, want %s", answer, err, tc.want)
				}
				if took := time.Since(start); took != 0 {
					t.Errorf("it has taken %v to say so", took)
				}
			})
		})
	}
}

// A caller whose deadline is too early for a turn books none.
func TestWaitGivesTheTurnBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := embed(t, "limit: 1, window: 1s, burst: 4, algorithm: leaky_bucket")
		c := deciding(func(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
			if deadline, _ := ctx.Deadline(); req.GetTokensRequested() < 0 && time.Until(deadline) != client.DefaultTimeout {
				t.Errorf("%v are left to give the turn back", time.Until(deadline))
			}
			return l.Check(ctx, req)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		var late, passed atomic.Int64
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				switch _, err := client.Wait(ctx, c, request("alice")); {
				case err == nil:
					passed.Add(1)
				case wouldBeLate(err):
					late.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		answer, err := l.Check(t.Context(), request("alice"))
		if err != nil || answer.GetDelay().AsDuration() != 2*time.Second {
			t.Errorf("%v, %v, want the turn behind the two that can wait", answer, err)
		}
		wg.Wait()
		if late.Load() != 18 || passed.Load() != 2 {
			t.Errorf("%d late, %d passed", late.Load(), passed.Load())
		}
	})
}

func TestWaitObeysItsContext(t *testing.T) {
	for name, limits := range map[string]string{
		"room": "limit: 1, window: 1h", "turn": "limit: 1, window: 1h, burst: 9, algorithm: leaky_bucket",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, start := embed(t, limits), time.Now()
				ctx, cancel := context.WithCancel(t.Context())
				if _, err := l.Wait(ctx, request("alice")); err != nil {
					t.Fatal(err)
				}
				time.AfterFunc(7*time.Minute, cancel)
				if _, err := l.Wait(ctx, request("alice")); !errors.Is(err, context.Canceled) || time.Since(start) != 7*time.Minute {
					t.Errorf("%v after %v", err, time.Since(start))
				}
			})
		})
	}
}

// While no node decides, Wait checks again; a deadline ends that.
func TestWaitWhileNoNodeDecides(t *testing.T) {
	undecided := &weirv1.RateLimitResponse{DenialReason: weirv1.DenialReason_DENIAL_REASON_UNDECIDED.Enum()}
	for name, fail := range map[string]func() (*weirv1.RateLimitResponse, error){
		"fail closed": func() (*weirv1.RateLimitResponse, error) { return undecided, nil },
		"overloaded": func() (*weirv1.RateLimitResponse, error) {
			return nil, status.Error(codes.ResourceExhausted, "overloaded")
		},
		"unavailable": func() (*weirv1.RateLimitResponse, error) { return nil, status.Error(codes.Unavailable, "stopping") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked, failing, start := 0, 30, time.Now()
				c := deciding(func(context.Context, *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
					if asked++; asked <= failing {
						return fail()
					}
					return &weirv1.RateLimitResponse{Allowed: true}, nil
				})
				if _, err := client.Wait(t.Context(), c, request("alice")); err != nil || asked != 31 || time.Since(start) < 5*time.Second {
					t.Errorf("%v after asking %d times in %v, want pauses that grow", err, asked, time.Since(start))
				}
				failing = 1 << 30
				start = time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := client.Wait(ctx, c, request("alice"))
				if wait, ok := client.RetryAfter(err); !errors.Is(err, context.DeadlineExceeded) || wouldBeLate(err) || wait != 0 || !ok {
					t.Errorf("%v, want the deadline and what is wrong", err)
				}
				if took := time.Since(start); took != time.Minute {
					t.Errorf("it has waited %v, want until the deadline", took)
				}
			})
		})
	}
}

// A client that fails closed and has not reached a node for long waits until the deadline,
// however short that is, and then says both; or until a node is back.
func TestWaitWithoutNode(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network, _ []*fakeNode) {
		c := n.client("a:1", client.WithFailClosed())
		time.Sleep(5 * time.Second) // a check does not wait for a node any more
		for _, left := range []time.Duration{time.Nanosecond, 20 * time.Millisecond, client.DefaultTimeout, 5 * time.Second} {
			for range 20 { // pauses are random
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), left)
				answer, err := c.Wait(ctx, request("alice"))
				cancel()
				var denied *client.DeniedError
				if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &denied) || !client.Undecided(denied.Answer) || answer != nil {
					t.Fatalf("%v, %v, want the deadline and that no node has answered", answer, err)
				}
				if took := time.Since(start); took != left {
					t.Fatalf("it has waited %v of %v", took, left)
				}
			}
		}
		time.AfterFunc(10*time.Second, func() { n.start("a") })
		if answer, err := c.Wait(t.Context(), request("alice")); err != nil || client.Undecided(answer) {
			t.Errorf("%v, %v, want the answer of the node that is back", answer, err)
		}
	})
}

// A remote limiter waits as an embedded one does.
func TestWaitRemote(t *testing.T) {
	bubble(t, 2, func(t *testing.T, n *network, _ []*fakeNode) {
		c := n.client("a:1")
		req := request("alice")
		req.TokensRequested = limit
		begin := time.Now()
		for range 2 {
			if _, err := c.Wait(t.Context(), req); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took < 59*time.Minute || took > 2*time.Hour {
			t.Errorf("twice the limit of an hour has taken %v", took)
		}
	})
}

// An embedded limiter answers what a node answers.
func TestEmbeddedAnswersAsANode(t *testing.T) {
	const text = "domain: default\nrules:\n- {id: per-user, per: [user], limits: [{limit: 1000, window: 10s}]}\n"
	set, err := rules.Parse("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		type step struct {
			user  string
			cost  int64
			peek  bool
			pause int
		}
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{
				rapid.SampledFrom([]string{"alice", "bob", ""}).Draw(rt, "user"), rapid.Int64Range(-400, 1100).Draw(rt, "cost"),
				rapid.Bool().Draw(rt, "peek"), rapid.IntRange(0, 4000).Draw(rt, "pause"),
			}
		}), 1, 20).Draw(rt, "steps")
		bubble(t, 1, func(t *testing.T, n *network, _ []*fakeNode) {
			n.set = set
			remote := n.client("a:1")
			local, err := embedded.New(text)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = local.Close() }()
			for _, s := range steps {
				time.Sleep(time.Duration(s.pause)*time.Millisecond + 1)
				req := request(s.user)
				req.TokensRequested, req.Peek = s.cost, s.peek
				want, wantErr := remote.Check(t.Context(), req)
				got, err := local.Check(t.Context(), req)
				if !proto.Equal(got, want) || status.Code(err) != status.Code(wantErr) {
					rt.Errorf("%v:\n got %v, %v\nwant %v, %v", req, got, err, want, wantErr)
				}
			}
		})
	})
}
