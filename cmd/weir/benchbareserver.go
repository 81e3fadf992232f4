package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/cmd/weir/internal/bench"
)

const (
	settingsDefault = "default"
	settingsNode    = "node"
)

var baselineSettings = []string{settingsDefault, settingsNode}

func (a *app) benchBaselineCommand() *cobra.Command {
	var listen, settings, cert, key string
	cmd := &cobra.Command{
		Use:   "baseline",
		Short: "Serve answers without deciding anything",
		Long: `Serve checks over gRPC with the same messages as a node, those of Envoy's API included,
and decide nothing. What "weir bench grpc" measures of it is the least that a node can
cost. It runs until SIGINT or SIGTERM. "weir bench grpc --baseline" starts one by itself.`,
		Example: `  weir bench baseline --listen 127.0.0.1:7070
  weir bench grpc --target 127.0.0.1:7070    in another terminal
  weir bench baseline --tls-cert certs/node-a.crt --tls-key certs/node-a.key`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(baselineSettings, settings) {
				return usageError(cmd, "--settings: %q is not one of %s", settings, strings.Join(baselineSettings, ", "))
			}
			secured, err := certificateOf(cert, key)
			if err != nil {
				return err
			}
			return a.benchBaseline(listen, settings == settingsNode, secured)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&listen, "listen", "127.0.0.1:0", "listen at `HOST:PORT`; port 0 picks a free one")
	flags.StringVar(&settings, "settings", settingsDefault, "gRPC and Go settings `NAME`: default, or node (those of weir serve)")
	flags.StringVar(&cert, "tls-cert", "", "serve with TLS, with the certificate in `FILE`, and ask clients for none")
	flags.StringVar(&key, "tls-key", "", "`FILE` of the certificate's key")
	return cmd
}

// certificateOf returns how a server has the certificate in two files, nil if they have no names.
func certificateOf(cert, key string) (*tls.Config, error) {
	if cert == "" && key == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert, --tls-key: %q, %q: %w", cert, key, err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}}, nil
}

func (a *app) benchBaseline(listen string, likeNode bool, secured *tls.Config) error {
	ctx, stop := a.untilSignal(slog.New(slog.DiscardHandler), func() {})
	defer stop()
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	address := l.Addr().String()
	fmt.Fprintf(a.stdout, "weir baseline serves gRPC on %s (pid %d); try: weir bench grpc --target %s --server-pid %[2]d\n",
		address, os.Getpid(), dialable(address))
	return bench.ServeBaseline(ctx, l, likeNode, secured)
}

// baselineLine is the line that benchBaseline prints.
var baselineLine = regexp.MustCompile(`^weir baseline serves gRPC on \S+ \(pid \d+\); try: weir bench grpc --target (\S+) --server-pid \d+\n$`)

// bareServer is a weir bench baseline in a process of its own.
type bareServer struct {
	address string
	pid     int
	stop    func() // also waits until it has ended
}

func startBaseline(settings string) (bareServer, error) {
	weir, err := os.Executable()
	if err != nil {
		return bareServer{}, err
	}
	cmd := exec.Command(weir, "bench", "baseline", "--settings", settings)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return bareServer{}, err
	}
	if err := cmd.Start(); err != nil {
		return bareServer{}, err
	}
	stop := func() {
		_ = cmd.Process.Kill() // it has nothing to lose
		_ = cmd.Wait()
	}
	line, _ := bufio.NewReader(stdout).ReadString('\n') // a line that is cut short does not match
	m := baselineLine.FindStringSubmatch(line)
	if m == nil {
		stop()
		return bareServer{}, fmt.Errorf("%s bench baseline did not start: it said %q", weir, line)
	}
	return bareServer{address: m[1], pid: cmd.Process.Pid, stop: stop}, nil
}
