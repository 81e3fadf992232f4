package main

import (
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
	stopped chan struct{}
	wait    sync.WaitGroup
}

// pingsPerTimeout is how many pings of the watchdog come within its timeout: one may be late.
const pingsPerTimeout = 3

func newSupervisor(env map[string]string, log *slog.Logger) *supervisor {
	s := &supervisor{log: log, present: env["NOTIFY_SOCKET"] != "", stopped: make(chan struct{})}
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

// ready says that the node serves, and has the watchdog pinged from now on.
func (s *supervisor) ready(info node.Info) {
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
	close(s.stopped)
	s.wait.Wait()
}
