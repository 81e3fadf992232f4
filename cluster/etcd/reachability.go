package etcd

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
)

// reachability remembers whether etcd answers, and says so when that changes. Its
// methods may be called from several goroutines.
type reachability struct {
	log     *slog.Logger
	metrics *metrics

	mu      sync.Mutex
	failing bool      // guarded by mu; the last exchange failed
	down    bool      // guarded by mu; and none has succeeded for unreachableAfter
	success time.Time // guarded by mu; when the last exchange succeeded
	renewed time.Time // guarded by mu; see Status
	granted time.Time // guarded by mu; see Status
}

// newReachability starts with an etcd that has just answered.
func newReachability(log *slog.Logger, m *metrics) *reachability {
	m.up.Set(1)
	return &reachability{log: log, metrics: m, success: time.Now()}
}

// unanswered records that etcd has not answered at all yet.
func (r *reachability) unanswered(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failing, r.down, r.success = true, true, time.Now().Add(-unreachableAfter)
	r.metrics.up.Set(0)
	r.log.Warn("etcd unreachable", "error", err)
}

// exchange notes how a call to etcd ended.
func (r *reachability) exchange(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if answered(err) {
		if r.down {
			r.metrics.up.Set(1)
			r.log.Info("etcd reachable again", "after", now.Sub(r.success).Round(time.Millisecond))
		}
		r.failing, r.down, r.success = false, false, now
		return
	}
	r.failing = true
	r.metrics.failures.Inc()
	if !r.down && now.Sub(r.success) >= unreachableAfter {
		r.down = true
		r.metrics.up.Set(0)
		r.log.Warn("etcd unreachable", "error", err)
	}
}

// answered reports whether etcd itself said err, and not for want of a leader.
func answered(err error) bool {
	if err == nil {
		return true
	}
	var said rpctypes.EtcdError
	return errors.As(err, &said) && said.Code() != codes.Unavailable
}

// renewal notes when the renewal was sent that keeps the lease; the zero time
// says that there is no lease.
func (r *reachability) renewal(sent time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.renewed = sent; sent.IsZero() {
		r.granted = time.Time{}
	}
}

// grant notes when it was learned that a lease was granted.
func (r *reachability) grant(learned time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.granted = learned
}

func (r *reachability) status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Status{
		Reachable: !r.failing || time.Since(r.success) < unreachableAfter,
		Renewed:   r.renewed,
		Granted:   r.granted,
	}
}

// Status says how the registry is doing.
type Status struct {
	// Reachable says whether etcd answers; see Registry.Reachable.
	Reachable bool
	// Renewed is when the last renewal of the lease that succeeded was sent. The
	// zero time means that there is no lease.
	Renewed time.Time
	// Granted is when the answer came which said that the lease was granted. The zero time means that there is no lease.
	Granted time.Time
	// Wiped says whether etcd has less than it had, or something else: then nothing is
	// written to it.
	Wiped bool
	// Alarm says in one sentence why what etcd holds is not believed and needs an
	// operator: it was wiped, restored from a backup, or damaged. Empty is good.
	Alarm string
}
