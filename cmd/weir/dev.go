package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/cmd/weir/internal/dev"
	"github.com/weirlimit/weir/node"
)

// devOptions are the options of nodes that weir dev gives itself.
var devOptions = []string{"id", "grpc", "http", "advertise", "etcd", "etcd-listen", "data-dir", "rules", "tls-cert", "tls-key", "tls-ca", "admin", "pprof", "rls-listen", "xds-server"}

func (a *app) devCommand() *cobra.Command {
	var nodes, port int64
	var host, rules string
	cmd := &cobra.Command{
		Use:   "dev [-- OPTION...]",
		Short: "Run a whole cluster on this machine, and break it by typing",
		Long: `Run a cluster on this machine: an etcd and --nodes nodes, each a process of its own. It prints their
addresses, and says when the cluster is whole. It reads commands, one a line, from a terminal or a script:

` + indent(dev.Help) + `

All ends with quit, the end of the input, SIGINT or SIGTERM. What the cluster has written is removed then.
Without --rules the rules are in etcd, see weir rules. What stands behind -- are options of weir serve for
every node. Options in the environment do not count. Nothing has TLS, and all listens on loopback only.

The exit code is 0, 2 if the command was given badly, and 1 if the cluster cannot start.`,
		Example: `  weir dev --nodes 3
  weir dev --nodes 3 --port 9090 --rules rules.yaml
  weir dev -- --peer-timeout 100ms
  printf '%s\n' wait 'kill node-2' wait nodes quit | weir dev`,
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.Int64Var(&nodes, "nodes", 3, fmt.Sprintf("run `N` nodes, at most %d", dev.MaxNodes))
	flags.Int64Var(&port, "port", 0, "first port: node-1 has gRPC at `PORT` and HTTP at the next, node-2 has the next two, etcd has the last; 0 looks for free ones")
	flags.StringVar(&host, "host", "127.0.0.1", "listen on `ADDRESS` of loopback")
	flags.StringVar(&rules, "rules", "", "`FILE` or directory of rules for every node, read again when it changes (default the rules in etcd)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
			return usageError(cmd, "dev takes no arguments before --, but got %q", args[0])
		}
		cfg := dev.Config{Nodes: int(nodes), Port: int(port), Host: host, Options: args}
		if err := checkDev(cmd, cfg); err != nil {
			return err
		}
		if rules != "" {
			path, err := filepath.Abs(rules)
			if err == nil {
				_, err = os.Stat(path)
			}
			if err != nil {
				return usageError(cmd, "--rules: %w", err)
			}
			cfg.Options = append(cfg.Options, "--rules", path)
		}
		return a.dev(cfg)
	}
	cmd.AddCommand(a.devNodeCommand(), a.devEtcdCommand())
	return cmd
}

func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }

// checkDev refuses what makes no cluster.
func checkDev(cmd *cobra.Command, cfg dev.Config) error {
	quantities := []quantity{{"nodes", int64(cfg.Nodes), 1, dev.MaxNodes}}
	if cmd.Flags().Changed("port") {
		quantities = append(quantities, quantity{"port", int64(cfg.Port), 1, 65535 - 2*dev.MaxNodes})
	}
	if err := checkQuantities(cmd, quantities...); err != nil {
		return err
	}
	if ip, err := netip.ParseAddr(cfg.Host); err != nil || !ip.IsLoopback() {
		return usageError(cmd, "--host: %q is no address of loopback, such as 127.0.0.1", cfg.Host)
	}
	flags := pflag.NewFlagSet("options", pflag.ContinueOnError)
	addOptions(flags)
	if err := flags.Parse(cfg.Options); err != nil {
		return usageError(cmd, "behind --: %w", err)
	}
	var problem error
	flags.Visit(func(f *pflag.Flag) {
		if slices.Contains(devOptions, f.Name) {
			problem = usageError(cmd, "behind --: --%s is set by weir dev for each node", f.Name)
		}
	})
	switch {
	case problem != nil:
		return problem
	case flags.NArg() > 0:
		return usageError(cmd, "behind --: %q is no option of weir serve", flags.Arg(0))
	}
	if _, _, err := readOptions(flags, nil); err != nil {
		return usageError(cmd, "behind --: %w", err)
	}
	return nil
}

// dev runs a cluster until its input ends or a signal comes.
func (a *app) dev(cfg dev.Config) error {
	// A closed terminal ends it, too: nothing may be left behind.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// So does output that is not read, whose writing fails then instead of ending the process. The signal itself says nothing: the
	// proxy has it for each node that is killed.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	var err error
	if cfg.Binary, err = os.Executable(); err != nil {
		return &exitError{err: err, code: 1}
	}
	var writing sync.Mutex
	cfg.Tell = func(text string) {
		writing.Lock()
		defer writing.Unlock()
		if _, err := io.WriteString(a.stdout, text+"\n"); err != nil {
			stop() // without a reader there is nothing to do
		}
	}
	cluster, err := dev.Start(ctx, cfg)
	if ctx.Err() != nil {
		err = nil // as was asked
	}
	if err != nil {
		return &exitError{err: err, code: 1}
	}
	if cluster == nil {
		return nil
	}
	cfg.Tell(cluster.Show())
	cfg.Tell("try in another terminal: weir check --node " + cluster.Address() + " user=alice; or type it here, without the address; help lists all commands")
	console := dev.Console{Cluster: cluster, Tell: cfg.Tell, Parse: parseRequest}
	err = console.Run(ctx, a.stdin)
	if closeErr := cluster.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return &exitError{err: err, code: 1}
	}
	return nil
}

// devNodeCommand is weir serve for a node that reaches others through the proxy of weir dev.
func (a *app) devNodeCommand() *cobra.Command {
	var proxy string
	cmd := &cobra.Command{
		Use:    "node",
		Short:  "Run a node of weir dev, which starts it",
		Args:   noArgs,
		Hidden: true,
	}
	addOptions(cmd.Flags())
	cmd.Flags().StringVar(&proxy, "proxy", "", "`HOST:PORT` of the proxy of weir dev")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		opts, _, err := readOptions(cmd.Flags(), nil)
		if err != nil {
			return err
		}
		serving := *a
		serving.env = nil
		serving.runNode = func(ctx context.Context, network node.Network, opts node.Options, log *slog.Logger, ready func(node.Info)) error {
			network.Dial = dev.Dialer(proxy, opts.ID)
			return node.RunOn(ctx, network, opts, log, ready)
		}
		return serving.serve(opts)
	}
	return cmd
}

// devEtcdCommand runs the etcd of weir dev.
func (a *app) devEtcdCommand() *cobra.Command {
	var listen, dir string
	cmd := &cobra.Command{
		Use:    "etcd",
		Short:  "Run the etcd of weir dev, which starts it",
		Args:   noArgs,
		Hidden: true,
	}
	cmd.Flags().StringVar(&listen, "listen", net.JoinHostPort("127.0.0.1", "0"), "listen at `HOST:PORT`")
	cmd.Flags().StringVar(&dir, "data-dir", "", "keep the data in `DIR`")
	cmd.RunE = func(_ *cobra.Command, _ []string) error {
		ctx, stop := a.untilSignal(slog.New(slog.DiscardHandler), func() {})
		defer stop()
		err := node.RunEtcd(ctx, listen, dir, func(address string) { fmt.Fprintln(a.stdout, dev.EtcdReady+address) })
		if err != nil {
			return &exitError{err: err, code: 1}
		}
		return nil
	}
	return cmd
}
