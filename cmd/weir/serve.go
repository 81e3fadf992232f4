package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/mem"

	"github.com/weirlimit/weir/node"
)

func (a *app) serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a node",
		Long: `Run a node until SIGINT or SIGTERM; a second one ends it at once.

Every option is also an environment variable (WEIR_ETCD_LISTEN for
--etcd-listen) and a key of the YAML file given with --config (etcd-listen:).
A flag wins over the environment, and that over the file. Paths are relative to
the working directory. The environment variables of envoyproxy/ratelimit are
understood as well, if one that only it has is set, such as RUNTIME_ROOT.`,
		Example: `  # One node, with an etcd of its own.
  weir serve --rules rules.yaml

  # A second node on the same machine joins it.
  weir serve --grpc 127.0.0.1:9091 --http 127.0.0.1:8081 --etcd 127.0.0.1:2379 --rules rules.yaml

  # A node among others on a trusted network, with an etcd cluster.
  weir serve --insecure --grpc 0.0.0.0:9090 --advertise weir-1:9090 \
      --etcd etcd-1:2379,etcd-2:2379,etcd-3:2379 --rules /etc/weir/rules`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := readOptions(cmd.Flags(), a.env)
			if err != nil {
				return err
			}
			return a.serve(opts)
		},
	}
	addOptions(cmd.Flags())
	return cmd
}

// serve runs a node until it fails or a signal stops it.
func (a *app) serve(opts node.Options) error {
	log := newLogger(a.stderr, opts.LogLevel)
	if unknown := unknownVariables(a.env); len(unknown) > 0 {
		log.Warn("ignoring unknown environment variables", "variables", strings.Join(unknown, ", "))
	}
	for _, ignored := range lyftWarnings(a.env) {
		log.Warn("ignoring environment variables of envoyproxy/ratelimit", "variables", strings.Join(ignored.names, ", "), "because", ignored.because)
	}
	if err := useBuffersThatFit(); err != nil {
		return err
	}
	ctx, stop := a.untilSignal(log)
	defer stop()
	err := a.runNode(ctx, opts, log, func(info node.Info) {
		fmt.Fprintln(a.stdout, readyLine(info))
	})
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// useBuffersThatFit gives gRPC buffers of every power of two from 256 bytes to 1 MiB. It sets each
// to zero before it uses it, and by default has none between 32 KiB and 1 MiB, so that a message
// of 128 KiB to a standby costs more for its buffer than for all else. Nothing in this process
// has used gRPC yet.
var useBuffersThatFit = sync.OnceValue(func() error {
	const least, most = 8, 20
	var exponents []uint8
	for e := uint8(least); e <= most; e++ {
		exponents = append(exponents, e)
	}
	pool, err := mem.NewBinaryTieredBufferPool(exponents...)
	if err == nil {
		experimental.SetDefaultBufferPool(pool)
	}
	return err
})

// sameSignal is how soon after the first a second signal is not meant as another.
const sameSignal = 200 * time.Millisecond

// untilSignal returns a context that the first SIGINT or SIGTERM cancels, and a
// function that gives the signals back and must be called. A second signal ends the
// process: whoever sends it does not want to wait. One that comes with the first was
// sent with it, as by timeout(1), which signals the process and its group.
func (a *app) untilSignal(log *slog.Logger) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	stopped := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		select {
		case s := <-signals:
			log.Info("stopping", "signal", s.String())
			cancel()
		case <-stopped:
			return
		}
		for first := time.Now(); ; {
			select {
			case s := <-signals:
				if time.Since(first) >= sameSignal {
					a.exit(signalExitCode(s))
					return
				}
			case <-stopped:
				return
			}
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(stopped)
		wait.Wait()
		cancel()
	}
}

// signalExitCode is 128 and the signal's number, as shells have it.
func signalExitCode(s os.Signal) int {
	if number, ok := s.(syscall.Signal); ok {
		return 128 + int(number)
	}
	return 1
}

// newLogger writes text for people and JSON for programs.
func newLogger(w io.Writer, level string) *slog.Logger {
	options := &slog.HandlerOptions{}
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err == nil {
		options.Level = least
	}
	if isTerminal(w) {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

// isTerminal takes any character device for a terminal, which is good enough to
// choose a format by.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// readyLine says where the node is and what to try next.
func readyLine(info node.Info) string {
	rules := fmt.Sprintf("%d rules", info.Rules)
	switch info.Rules {
	case 0:
		rules = "no rules: everything is allowed"
		if info.RulesPath == "" {
			rules += "; add some with: weir rules apply -f FILE" + atNode(info.GRPC)
		}
	case 1:
		rules = "1 rule"
	}
	etcd := "etcd at " + info.Etcd
	if info.EmbeddedEtcd {
		etcd = "embedded etcd on " + info.Etcd
	}
	try := "weir check" + atNode(info.GRPC) + " user=alice endpoint=/api/v1/posts"
	if info.Descriptors {
		try = "curl " + dialable(info.HTTP) + "/rlconfig"
	}
	return fmt.Sprintf("weir node %s serves gRPC on %s and HTTP on %s (%s, %s); try: %s", info.ID, info.GRPC, info.HTTP, rules, etcd, try)
}

// atNode is the flag that commands need to find the node that listens there.
func atNode(listen string) string {
	if address := dialable(listen); address != defaultNode {
		return " --node " + address
	}
	return ""
}

// dialable replaces a wildcard by loopback.
func dialable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}
