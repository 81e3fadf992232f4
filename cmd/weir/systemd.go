package main

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/weirlimit/weir/node"
)

// supervisor is what has started this process and wants to be told how it fares: systemd, by the protocol of
// sd_notify(3). Without NOTIFY_SOCKET in the environment there is none, and its methods do nothing. Make it with
// newSupervisor, and call stop in the end.
type supervisor struct {
	log     *slog.Logger
	present bool
	every   time.Duration // between pings of the watchdog; 0 without one
	extend  time.Duration // by which the end of a start is put off while the node waits
	started func()        // ends what puts it off; idempotent
	starts  chan struct{} // closed by started
	stopped chan struct{}
	wait    sync.WaitGroup
}

// startExtension is how long the service manager waits for a further word of a node that waits. A node that is stuck is
// started again after it.
const startExtension = time.Minute

// pingsPerTimeout is how many pings of the watchdog come within its timeout: one may be late.
const pingsPerTimeout = 3

func newSupervisor(env map[string]string, log *slog.Logger) *supervisor {
	s := &supervisor{log: log, present: env["NOTIFY_SOCKET"] != "", extend: startExtension, starts: make(chan struct{}), stopped: make(chan struct{})}
	s.started = sync.OnceFunc(func() { close(s.starts) })
	if !s.present {
		return s
	}
	timeout, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("no watchdog: WATCHDOG_USEC or WATCHDOG_PID is not a number above 0", "error", err)
	}
	s.every = timeout / pingsPerTimeout
	return s
}

func (s *supervisor) tell(state string) {
	if !s.present {
		return
	}
	if _, err := daemon.SdNotify(false, state); err != nil {
		s.log.Warn("the service manager was not notified", "state", state, "error", err)
	}
}

// waiting says what the node waits for before it is ready, and puts the end of its start off for as long as it waits and
// is not stuck. Else the node would be started again after TimeoutStartSec, which mends nothing.
func (s *supervisor) waiting(reason string, parts *node.Parts) {
	if s.present {
		s.tell("STATUS=" + reason)
		s.wait.Go(func() { s.putOff(parts.Answer) })
	}
}

// putOff extends the time of the start whenever the node has answered, until it is ready or stops.
func (s *supervisor) putOff(answer func()) {
	tick := time.NewTicker(s.extend / pingsPerTimeout)
	defer tick.Stop()
	for {
		answer()
		select { // once stopping, it would extend the time of the stop
		case <-s.starts:
			return
		default:
		}
		s.tell(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", s.extend.Microseconds()))
		select {
		case <-tick.C:
		case <-s.starts:
			return
		}
	}
}

// ready says that the node serves, and has the watchdog pinged from now on.
func (s *supervisor) ready(info node.Info) {
	s.started()
	s.tell(daemon.SdNotifyReady + "\nSTATUS=serving gRPC at " + info.GRPC + " and HTTP at " + info.HTTP)
	if s.every > 0 {
		s.wait.Go(func() { s.ping(info.Parts.Answer) })
	}
}

// reload says that f has the node read its files again, and then that f is done.
func (s *supervisor) reload(f func()) {
	s.tell(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
	f()
	s.tell(daemon.SdNotifyReady)
}

// stopping says that the node leaves its cluster, and ends by itself.
func (s *supervisor) stopping() {
	s.started()
	s.tell(daemon.SdNotifyStopping + "\nSTATUS=handing its counters over")
}

// ping tells the watchdog that the node is alive, whenever the node has answered. A node that is stuck answers nothing,
// so that the pings end.
func (s *supervisor) ping(answer func()) {
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for {
		answer()
		s.tell(daemon.SdNotifyWatchdog)
		select {
		case <-tick.C:
		case <-s.stopped:
			return
		}
	}
}

func (s *supervisor) stop() {
	s.started()
	close(s.stopped)
	s.wait.Wait()
}
