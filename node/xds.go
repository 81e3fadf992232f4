package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/rules/xds"
)

// MaxXDSMessage is the most that one message of an xDS server may have, in bytes.
const MaxXDSMessage = xds.MaxMessage

// Bounds and defaults of the options of xDS.
const (
	defaultXDSNodeID   = "default" // as envoyproxy/ratelimit has it
	defaultXDSRetry    = time.Second
	defaultXDSRetryMax = 30 * time.Second
	minXDSRetry        = 100 * time.Millisecond
	maxXDSRetry        = time.Hour
	xdsFileName        = "xds-rules" // in the data directory
	maxXDSPairs        = 64          // metadata, and likewise headers
	examineXDSTime     = 3 * time.Second
	xdsCertEvery       = 10 * time.Second // its file is read for its end
)

// xdsKeepAlive finds a server out that has vanished without a word, within 30 s. Pings of gRPC would not do: servers
// end connections that ping more often than every 5 minutes, unless they are told otherwise.
var xdsKeepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// xdsHasTLS reports whether the xDS server is asked over TLS.
func (o Options) xdsHasTLS() bool { return strings.HasPrefix(o.XDSServer, httpsScheme) }

func (o Options) badXDS() string {
	address := strings.TrimPrefix(o.XDSServer, httpsScheme)
	host, _, _ := net.SplitHostPort(address)
	problem := badHostPort(address, 1)
	switch {
	case o.XDSServer == "":
		for _, other := range []struct {
			option string
			given  bool
		}{
			{"xds-cert", o.XDSCert != ""}, {"xds-key", o.XDSKey != ""}, {"xds-ca", o.XDSCA != ""}, {"xds-server-name", o.XDSServerName != ""},
			{"xds-metadata", len(o.XDSMetadata) > 0}, {"xds-headers", len(o.XDSHeaders) > 0}, {"xds-start-empty", o.XDSStartEmpty},
		} {
			if other.given {
				return fmt.Sprintf("--%s needs --xds-server as well", other.option)
			}
		}
		return ""
	case problem != "":
		return problem
	case isWildcard(host):
		return fmt.Sprintf("%s names no host to connect to", address)
	case o.Rules != "":
		return "is not for a node with --rules: its rules come from the xDS server or from files"
	case o.xdsHasTLS():
		return ""
	case o.XDSCert != "" || o.XDSKey != "" || o.XDSCA != "" || o.XDSServerName != "":
		return "--xds-cert, --xds-key, --xds-ca and --xds-server-name need a server with TLS, as --xds-server https://" + address
	}
	return ""
}

func (o Options) badXDSCert() string {
	switch {
	case o.XDSCert != "" && o.XDSKey == "":
		return "--xds-cert needs --xds-key as well"
	case o.XDSKey != "" && o.XDSCert == "":
		return "--xds-key needs --xds-cert as well"
	}
	return ""
}

// badXDSMetadata checks KEY=VALUE.
func badXDSMetadata(pairs []string) string {
	_, problem := xdsPairs(pairs, "=")
	return problem
}

// badXDSHeaders checks NAME:VALUE, and that the values, which are secrets as a rule, do not go over a network in clear.
func (o Options) badXDSHeaders() string {
	headers, problem := xdsPairs(o.XDSHeaders, ":")
	for name, value := range headers {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return fmt.Sprintf("%q is not the name and the value of a header field, such as x-tenant:a", name+":"+value)
		}
	}
	host, _, err := net.SplitHostPort(o.XDSServer)
	if problem == "" && err == nil && len(headers) > 0 && !o.Insecure && !o.xdsHasTLS() && !isLoopback(host) {
		problem = fmt.Sprintf("would go over the network without TLS; pass --xds-server https://%s, or --insecure if the network is trusted", o.XDSServer)
	}
	return problem
}

// xdsPairs takes pairs apart, and returns what is wrong with one.
func xdsPairs(pairs []string, separator string) (map[string]string, string) {
	if len(pairs) > maxXDSPairs {
		return nil, fmt.Sprintf("has %d entries, at most %d are allowed", len(pairs), maxXDSPairs)
	}
	values := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, separator)
		if _, twice := values[key]; !ok || key == "" || twice {
			return nil, fmt.Sprintf("%q is not a new name, %q and a value", pair, separator)
		}
		values[key] = value
	}
	return values, ""
}

func (o Options) badXDSRetry() string {
	if problem := badDuration(o.XDSRetry, minXDSRetry, maxXDSRetry); problem != "" {
		return problem
	}
	if o.XDSRetry > o.XDSRetryMax {
		return fmt.Sprintf("%v is more than --xds-retry-max, %v", o.XDSRetry, o.XDSRetryMax)
	}
	return ""
}

// xdsFile returns where the last good rules of the xDS server are kept; empty without a data directory.
func (n *node) xdsFile() string {
	if n.opts.DataDir == "" {
		return ""
	}
	return filepath.Join(n.opts.DataDir, xdsFileName)
}

// openXDS prepares the source of rules that follows an xDS server. It keeps the last good rules in a file, unless that is empty.
func (n *node) openXDS(keep string) (err error) {
	o := n.opts
	cfg := xds.Config{
		Server: strings.TrimPrefix(o.XDSServer, httpsScheme), NodeID: o.XDSNodeID, RetryMin: o.XDSRetry, RetryMax: o.XDSRetryMax,
		Dial: n.dialXDS, Keep: keep, Now: time.Now, Options: o.rules(), StartEmpty: o.XDSStartEmpty, Logger: n.log, Metrics: n.metrics,
	}
	cfg.Metadata, _ = xdsPairs(o.XDSMetadata, "=")
	cfg.Headers, _ = xdsPairs(o.XDSHeaders, ":")
	if o.xdsHasTLS() {
		files := certs.Files{Cert: o.XDSCert, Key: o.XDSKey, CA: o.XDSCA}
		cfg.TLS = func() (*tls.Config, error) { return certs.HostClient(files, o.XDSServerName) }
		if _, err := cfg.TLS(); err != nil {
			return err
		}
		if o.XDSCert != "" {
			ends, err := certs.LeafExpires(o.XDSCert)
			if err != nil {
				return fmt.Errorf("xds-cert: %w", err)
			}
			n.lastXDSCertEnd.Store(&ends)
			n.exportExpiry("xds-cert", n.xdsCertEnds)
		}
	}
	n.xds, err = xds.New(cfg)
	if err == nil {
		n.rules = n.xds
	}
	return err
}

func (n *node) dialXDS(ctx context.Context, address string) (net.Conn, error) {
	if n.network.Dial != nil {
		return n.network.Dial(ctx, address)
	}
	return (&net.Dialer{KeepAliveConfig: xdsKeepAlive}).DialContext(ctx, "tcp", address)
}

// hasRules reports whether the rules that a node needs before it serves have come. Only those of an xDS server can be
// late.
func (n *node) hasRules() bool {
	if n.xds == nil || n.opts.XDSStartEmpty {
		return true
	}
	select {
	case <-n.xds.Received():
		return true
	default:
		return false
	}
}

// xdsProblems says what is wrong with the xDS server.
func (n *node) xdsProblems(now time.Time) (problems []problem) {
	if n.xds == nil {
		return nil
	}
	state := "the last good rules stay in force"
	select {
	case <-n.xds.Received():
	default:
		state = "there are no rules yet, and this node does not serve before there are"
		if n.opts.XDSStartEmpty {
			state = "there are no rules yet, and everything is allowed"
		}
		if n.xds.Disconnected() == nil {
			problems = append(problems, problemAbout("no good rules from the xDS server", "the xDS server %s has sent no good rules for node %q: %s", n.opts.XDSServer, n.opts.XDSNodeID, state))
		}
	}
	if ends := n.xdsCertEnds(); !ends.IsZero() && ends.Sub(now) < expiresSoon {
		problems = append(problems, problemAbout("the certificate of --xds-cert ends", "the certificate of --xds-cert ends at %v: put a new one in its place", ends.UTC().Format(time.RFC3339)))
	}
	if kept := n.xds.KeptAt(); !kept.IsZero() {
		problems = append(problems, problemAbout("rules of an earlier run", "this node has started from the rules that the xDS server %s sent before, at %v, as kept in %s: it has sent none since", n.opts.XDSServer, kept.UTC().Format(time.RFC3339), n.xdsFile()))
	}
	if err := n.xds.KeepErr(); err != nil {
		problems = append(problems, problemAbout("rules cannot be written to disk", "this node would start with older rules, or without any, while the xDS server is away, because those in force cannot be written to disk: %v", err))
	}
	if err := n.xds.Disconnected(); err != nil {
		problems = append(problems, problemAbout("no stream to the xDS server", "there is no stream to the xDS server %s: %s; attempts go on: %v", n.opts.XDSServer, state, err))
	}
	return problems
}

// watchXDSCert reads the end of the certificate that the xDS server is shown again and again until ctx ends. A file that
// cannot be read changes nothing: the next connection says so.
func (n *node) watchXDSCert(ctx context.Context) {
	tick := time.NewTicker(xdsCertEvery)
	defer tick.Stop()
	for {
		if ends, err := certs.LeafExpires(n.opts.XDSCert); err == nil {
			n.lastXDSCertEnd.Store(&ends)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// xdsCertEnds returns when the certificate ends that the xDS server is shown, by its file as it could be read last. It is
// the zero time without one.
func (n *node) xdsCertEnds() time.Time {
	if last := n.lastXDSCertEnd.Load(); last != nil {
		return *last
	}
	return time.Time{}
}

// examineXDS asks the xDS server for the rules, as a node with these options would.
func (d *doctor) examineXDS(ctx context.Context) {
	n := d.node
	err := n.openXDS("")
	if option, rest, found := cutOption(err); found {
		d.add(Bad, option, "%s", rest)
		return
	}
	if !d.check(err, "xds-server", "is configured well") {
		return
	}
	d.fileEnds("xds-cert", n.opts.XDSCert, certs.LeafExpires)
	d.fileEnds("xds-ca", n.opts.XDSCA, certs.AuthoritiesExpire)
	ctx, cancel := context.WithTimeout(ctx, examineXDSTime)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = n.xds.Run(ctx) // its error is always nil
	}()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for waiting := true; waiting && n.xds.Err() == nil; {
		select {
		case <-n.xds.Received():
			waiting = false
		case <-ctx.Done():
			waiting = false
		case <-look.C:
		}
	}
	disconnected, refused := n.xds.Disconnected(), n.xds.Err()
	cancel()
	<-ended
	switch {
	case refused != nil:
		d.add(Bad, "xds-server", "%s sends rules that are refused: %v", n.opts.XDSServer, refused)
	case disconnected != nil:
		d.add(Bad, "xds-server", "%s does not answer: %v", n.opts.XDSServer, disconnected)
	case n.rules.Set().Len() == 0:
		d.add(Doubtful, "xds-server", "%s has sent no rules for node %q: everything is allowed", n.opts.XDSServer, n.opts.XDSNodeID)
	default:
		d.add(Good, "xds-server", "%s has sent %d rules", n.opts.XDSServer, n.rules.Set().Len())
	}
}
