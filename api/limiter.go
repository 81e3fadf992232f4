package api

import (
	"cmp"
	"context"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/api/envoy"
	"github.com/weirlimit/weir/api/internal/check"
	"github.com/weirlimit/weir/internal/audit"
	"github.com/weirlimit/weir/internal/decisionlog"
	"github.com/weirlimit/weir/internal/headers"
	"github.com/weirlimit/weir/internal/topkeys"
	"github.com/weirlimit/weir/internal/tracing"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/shard"
)

// DefaultDomain is the domain of requests that name none.
const DefaultDomain = check.DefaultDomain

// Decider answers groups wherever their counters live. *cluster.Router is one.
type Decider interface {
	Decide(ctx context.Context, groups []shard.Group)
	// HasTime reports whether owners have time for times*len(takes) takes, which are spread over nodes as these are.
	HasTime(takes []shard.Take, times int) bool
	// Owner returns the id of the node that owns a counter, "" if that is not known.
	Owner(key ring.Key) string
	// Standby returns the id of the node that has a copy of the counter, "" if there is none or that is not known.
	Standby(key ring.Key) string
}

// Config says how to build a Limiter. The first four fields are required.
type Config struct {
	// Rules returns the rules to apply now.
	Rules func() *rules.Set
	// Hasher makes the keys of counters. All nodes of a cluster need the same.
	Hasher ring.Hasher
	// Decider answers.
	Decider Decider
	// Metrics is where the limiter's metrics are registered.
	Metrics prometheus.Registerer
	// Started reports whether the node has been able to decide, or to ask the nodes that do, since it was started. Until then
	// streams of checks are refused, so that clients use other nodes. Nil is always.
	Started func() bool
	// View returns the number of the view that the node routes by, 0 before the first. Answers on streams carry it. Nil is always 0.
	View func() uint64
	// Overload says which calls there is time for. All by default.
	Overload Overload
	// Audit records changes; nil is none.
	Audit *audit.Log
	// Decisions records checks; nil is none.
	Decisions *decisionlog.Log
	// Tracing makes spans of checks; nil is none.
	Tracing *tracing.Tracing
	// Top records the keys that are asked for most; nil is none.
	Top *topkeys.Recorder
	// Style is how decisions are told in header fields.
	Style headers.Style
	// Auth says how requests that a proxy asks about become attributes.
	Auth AuthConfig
	// Envoy says how Envoy's API answers.
	Envoy envoy.Config
	// Logger is told once of requests that cannot work as they are meant. None by default.
	Logger *slog.Logger
}

// Limiter decides requests. It is safe for concurrent use; make it with
// NewLimiter.
type Limiter struct {
	checks   *check.Checker
	duration callDurations
	calls    *callMetrics
	works    sync.Pool // of *work
	envoy    *envoy.Service
	style    headers.Style
	auth     AuthConfig
	overload Overload
	started  func() bool   // nil: always
	view     func() uint64 // the number of the node's view
	audit    *audit.Log    // of changes; nil: none

	unread     *unreadBudget
	unfinished *unfinishedBudget
	lingering  lingering
	stop       context.CancelFunc
	stopped    context.Context // ends with Stop; streams of checks end with it
}

// callDurations observe how long calls take, by API.
type callDurations struct{ check, batch, stream, auth prometheus.Observer }

// NewLimiter returns a Limiter of the set that rules returns at each request.
func NewLimiter(c Config) *Limiter {
	stopped, stop := context.WithCancel(context.Background())
	checks := check.New(check.Config{Rules: c.Rules, Hasher: c.Hasher, Decider: c.Decider, Metrics: c.Metrics, Decisions: c.Decisions, Tracing: c.Tracing, Top: c.Top})
	l := &Limiter{
		checks: checks,
		duration: callDurations{
			check: checks.Duration("check"), batch: checks.Duration("batch"), stream: checks.Duration("stream"), auth: checks.Duration("auth"),
		},
		calls:      newCallMetrics(c.Metrics, c.Tracing != nil),
		works:      sync.Pool{New: func() any { return new(work) }},
		style:      c.Style,
		auth:       c.Auth,
		audit:      c.Audit,
		overload:   cmp.Or[Overload](c.Overload, acceptAll{}),
		unread:     newUnreadBudget(c.Metrics),
		unfinished: newUnfinishedBudget(c.Metrics),
		started:    c.Started,
		view:       c.View,
		stop:       stop,
		stopped:    stopped,
	}
	if l.view == nil {
		l.view = func() uint64 { return 0 }
	}
	l.envoy = envoy.New(checks, c.Envoy, overloadOfEnvoy{l}, cmp.Or(c.Logger, slog.New(slog.DiscardHandler)))
	return l
}

// Traffic is what a node has answered since it was started.
type Traffic = check.Traffic

// Traffic returns what was answered, of all APIs together.
func (l *Limiter) Traffic() Traffic { return l.checks.Traffic() }

// Stop ends all streams of checks, which would hold up a server that waits for its
// calls. Messages that are being decided are answered.
func (l *Limiter) Stop() {
	l.stop()
	l.unread.stop()
}
