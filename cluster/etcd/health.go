package etcd

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
)

// health remembers whether etcd answers, and says so when that changes. Its
// methods may be called from several goroutines.
type health struct {
	log     *slog.Logger
	metrics *metrics

	mu      sync.Mutex
	failing bool      // guarded by mu; the last exchange failed
	down    bool      // guarded by mu; and none has succeeded for unreachableAfter
	success time.Time // guarded by mu; when the last exchange succeeded
	renewed time.Time // guarded by mu; see Status
}

// newHealth starts with an etcd that has just answered.
func newHealth(log *slog.Logger, m *metrics) *health {
	m.up.Set(1)
	return &health{log: log, metrics: m, success: time.Now()}
}

// unanswered records that etcd has not answered at all yet.
func (h *health) unanswered(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failing, h.down, h.success = true, true, time.Now().Add(-unreachableAfter)
	h.metrics.up.Set(0)
	h.log.Warn("etcd unreachable", "error", err)
}

// exchange notes how a call to etcd ended.
func (h *health) exchange(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if answered(err) {
		if h.down {
			h.metrics.up.Set(1)
			h.log.Info("etcd reachable again", "after", now.Sub(h.success).Round(time.Millisecond))
		}
		h.failing, h.down, h.success = false, false, now
		return
	}
	h.failing = true
	h.metrics.failures.Inc()
	if !h.down && now.Sub(h.success) >= unreachableAfter {
		h.down = true
		h.metrics.up.Set(0)
		h.log.Warn("etcd unreachable", "error", err)
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
func (h *health) renewal(sent time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.renewed = sent
}

func (h *health) status() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Status{
		Reachable: !h.failing || time.Since(h.success) < unreachableAfter,
		Renewed:   h.renewed,
	}
}
