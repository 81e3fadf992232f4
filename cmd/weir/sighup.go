package main

import (
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/weirlimit/weir/node"
)

// hangups has a node read its rules again with every SIGHUP, which would end the process
// without a word otherwise. Make it with onHangup, and call stop in the end.
type hangups struct {
	reloader atomic.Pointer[node.Reloader] // nil until the node is ready
	signals  chan os.Signal
	stopped  chan struct{}
	wait     sync.WaitGroup
}

func onHangup(log *slog.Logger, manager *supervisor) *hangups {
	h := &hangups{signals: make(chan os.Signal, 1), stopped: make(chan struct{})}
	signal.Notify(h.signals, syscall.SIGHUP)
	h.wait.Go(func() {
		for {
			select {
			case <-h.signals:
				reloader := h.reloader.Load()
				if reloader == nil {
					log.Info("nothing to read again while the node starts", "signal", "hangup")
					continue
				}
				log.Info("reading the rules again", "signal", "hangup")
				manager.reload(reloader.Reload)
			case <-h.stopped:
				return
			}
		}
	})
	return h
}

func (h *hangups) stop() {
	signal.Stop(h.signals)
	close(h.stopped)
	h.wait.Wait()
}
