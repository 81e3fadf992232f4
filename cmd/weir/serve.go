package main

import (
	"cmp"
	"context"
	"errors"
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
	"github.com/weirlimit/weir/rules"
)

func (a *app) serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a node",
		Long: `Run a node until SIGINT or SIGTERM. It hands its counters over before it ends; a second
signal ends it at once. On SIGHUP it reads its rules, certificate and tokens again,
and opens the files of the audit log and the decision log again. It tells systemd when
it is ready, when it reads again, when it stops, and that it is alive.

Every option is also an environment variable (WEIR_ETCD_LISTEN for --etcd-listen) and
a key of the YAML file given with --config (etcd-listen:). A flag wins over the
environment, and the environment over the file. "weir config check" checks the file.
Paths are relative to the working directory.

The environment variables of envoyproxy/ratelimit are understood as well, if one is set
that no other program has, such as RUNTIME_ROOT.

The exit code is 0 after a signal, 2 if an option or the rules are bad, and 1 if the
node cannot start or go on for another reason.`,
		Example: `  # One node, with an etcd of its own.
  weir serve --rules rules.yaml

  # A second node on the same machine joins it.
  weir serve --grpc 127.0.0.1:9091 --http 127.0.0.1:8081 --etcd 127.0.0.1:2379 --rules rules.yaml

  # A node among others on a trusted network, with an etcd cluster.
  weir serve --insecure --grpc 0.0.0.0:9090 --advertise weir-1:9090 \
      --etcd etcd-1:2379,etcd-2:2379,etcd-3:2379 --rules /etc/weir/rules`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, _, err := readOptions(cmd.Flags(), a.env)
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
	for _, ignored := range lyftWarnings(a.env, opts) {
		log.Warn("ignoring environment variables of envoyproxy/ratelimit", "variables", strings.Join(ignored.names, ", "), "because", ignored.because)
	}
	if err := useBuffersThatFit(); err != nil {
		return err
	}
	if a.ownsProcess {
		logLibraries(log)
	}
	manager := newSupervisor(a.env, log)
	defer manager.stop()
	ctx, stop := a.untilSignal(log, manager.stopping)
	defer stop()
	hangup := onHangup(log, manager)
	defer hangup.stop()
	err := a.runNode(ctx, node.Network{Waiting: manager.waiting}, opts, log, func(info node.Info) {
		hangup.reloader.Store(info.Reloader)
		logReady(log, info)
		manager.ready(info)
	})
	if err == nil || ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	err = serveError(opts, err)
	if isTerminal(a.stderr) {
		return err
	}
	log.Error("the node has failed", "error", err)
	return &exitError{code: exitCode(err)}
}

// serveError gives the end of a node its exit code: 2 if the options or the rules that it was
// given are bad, so that starting it again is no use, and 1 for all else.
func serveError(opts node.Options, err error) error {
	_, badOption := errors.AsType[*node.OptionError](err)
	_, badRules := errors.AsType[*rules.LoadError](err)
	if badOption || badRules && opts.Rules != "" {
		return err
	}
	return &exitError{err: err, code: 1}
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

// untilSignal returns a context that the first SIGINT or SIGTERM cancels, once it has called stopping, and a function that
// gives the signals back and must be called. A second signal ends the process: its sender does not want to wait. One
// that comes with the first was sent with it, as by timeout(1), which signals the process and its group.
func (a *app) untilSignal(log *slog.Logger, stopping func()) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	stopped := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		select {
		case s := <-signals:
			log.Info("stopping", "signal", s.String())
			stopping()
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

// logReady says where the node is and what to try next. It does so at any level: the operator who started
// the node waits for it.
func logReady(log *slog.Logger, info node.Info) {
	try := "weir check" + atNode(info.GRPC) + " user=alice endpoint=/api/v1/posts"
	switch {
	case info.Descriptors:
		try = "curl " + dialable(info.HTTP) + "/rlconfig"
	case info.Rules == 0 && info.RulesPath == "" && info.XDS == "":
		try = "weir rules apply -f FILE" + atNode(cmp.Or(info.Admin, info.GRPC)) + " (without rules everything is allowed)"
	}
	log = slog.New(anyLevel{log.Handler()})
	if info.Admin != "" {
		log = log.With("admin", info.Admin)
	}
	if info.XDS != "" {
		log = log.With("xds", info.XDS)
	}
	if info.RLS != "" {
		log = log.With("rls", info.RLS)
	}
	log.Info("ready", "id", info.ID, "grpc", info.GRPC, "http", info.HTTP, "rules", info.Rules,
		"etcd", info.Etcd, "embedded_etcd", info.EmbeddedEtcd, "try", try)
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
