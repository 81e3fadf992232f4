package etcd

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"time"
)

// ServerConfig says how to run an etcd in this process.
type ServerConfig struct {
	// Listen is where clients reach it, as host:port. Port 0 picks a free one.
	Listen string
	// Dir holds its data and nothing else. It is created if missing, for this
	// user only.
	Dir string
	// TLS secures the connections of clients, and says which may connect. Nil means not to. This process itself connects
	// to an address on loopback without it.
	TLS *tls.Config
	// Logger takes what etcd has to say; nil drops it.
	Logger *slog.Logger
}

// startError turns what embed says into our one sentence.
func startError(cfg ServerConfig, err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "listen" {
		return fmt.Errorf("etcd: listen on %s: %w", cfg.Listen, reason(err))
	}
	if err = reason(err); !errors.As(err, new(syscall.Errno)) {
		err = fmt.Errorf("etcd does not start: %w", err)
	}
	return dirError(cfg.Dir, err)
}

// reason cuts the operating system's reason out of err, if it has one.
func reason(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// Bounds of the server in this process.
const (
	startTimeout = 5 * time.Second
	closeTimeout = 5 * time.Second
	// deadTimeout is closeTimeout after etcd has died of an internal error: its own
	// shutdown may then wait for ever for a goroutine that is no more.
	deadTimeout = time.Second
)

var (
	errDirInUse = errors.New("in use by another process; stop the node that runs there, or name another directory")
	errPanic    = errors.New("it panicked while it started: its data may be damaged")
)

func dirError(dir string, err error) error {
	return fmt.Errorf("etcd: data directory %s: %w", dir, reason(err))
}
