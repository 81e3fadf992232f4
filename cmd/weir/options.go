package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/node"
)

// option is one field of node.Options as people set it: as a flag, as an
// environment variable or as a key of the configuration file.
type option struct {
	name    string // of the flag and of the key
	kind    string // what help calls the value; "bool" for a switch, which takes none
	initial string // what the flag's help shows as the default
	usage   string
	set     func(o *node.Options, text string) error
}

// isList says that several values may be given, with commas in between.
func (o option) isList() bool { return strings.HasSuffix(o.kind, ",...") }

func options() []option {
	d := node.Options{}.WithDefaults()
	return []option{
		{"id", "NAME", "", "name of this node in its cluster; a node that is restarted under its name takes its old place (default the host's name and the gRPC port)",
			text(func(o *node.Options) *string { return &o.ID })},
		{"grpc", "HOST:PORT", d.GRPC, "address to listen on for gRPC, from clients and other nodes; port 0 picks a free one",
			text(func(o *node.Options) *string { return &o.GRPC })},
		{"http", "HOST:PORT", d.HTTP, "address to listen on for HTTP; port 0 picks a free one",
			text(func(o *node.Options) *string { return &o.HTTP })},
		{"admin", "HOST:PORT", "", "listen for admin calls here, over gRPC and HTTP alike: metrics, profiles, health details and changes; --grpc and --http then have none of them (default none: they serve all but profiles)",
			text(func(o *node.Options) *string { return &o.Admin })},
		{"advertise", "HOST:PORT", "", "address at which other nodes reach this node's gRPC (default the address in --grpc)",
			text(func(o *node.Options) *string { return &o.Advertise })},
		{"cluster", "NAME", d.Cluster, "name of the cluster; nodes with the same etcd and the same cluster share their limits",
			text(func(o *node.Options) *string { return &o.Cluster })},
		{"etcd", "HOST:PORT,...", "", "endpoints of an etcd cluster, each after https:// if they have TLS (default none: run an etcd in this process)",
			list(func(o *node.Options) *[]string { return &o.Etcd })},
		{"etcd-cert", "FILE", "", "certificate in PEM that this node shows to an etcd with TLS (default --tls-cert, unless --etcd-ca is given)",
			text(func(o *node.Options) *string { return &o.EtcdCert })},
		{"etcd-key", "FILE", "", "private key of --etcd-cert",
			text(func(o *node.Options) *string { return &o.EtcdKey })},
		{"etcd-ca", "FILE", "", "CA by which an etcd with TLS is verified (default --tls-ca, unless --etcd-cert is given; else the CAs of the system)",
			text(func(o *node.Options) *string { return &o.EtcdCA })},
		{"etcd-user", "NAME", "", "user of an etcd with authentication (default none)",
			text(func(o *node.Options) *string { return &o.EtcdUser })},
		{"etcd-password-file", "FILE", "", "file of the password of --etcd-user",
			text(func(o *node.Options) *string { return &o.EtcdPasswordFile })},
		{"etcd-wait", "DURATION", d.EtcdWait.String(), "how long a node that has never run waits for etcd before it ends with an error, 1s to 1h; one that has run starts without etcd. Under systemd raise TimeoutStartSec of the unit as well, which has 2 minutes",
			above0(duration, func(o *node.Options) *time.Duration { return &o.EtcdWait })},
		{"etcd-listen", "HOST:PORT", d.EtcdListen, "address on which the etcd in this process listens, so that more nodes can join with --etcd; beyond loopback it has the TLS of this node; port 0 picks a free one",
			text(func(o *node.Options) *string { return &o.EtcdListen })},
		{"data-dir", "DIR", "", "directory for what must survive a restart: the data of the etcd in this process, what a node needs to start while etcd or the xDS server is unreachable, and snapshots of the counters (default weir/ID under $XDG_STATE_HOME or ~/.local/state)",
			text(func(o *node.Options) *string { return &o.DataDir })},
		{"snapshot-every", "DURATION", d.SnapshotEvery.String(), "how often the counters are written to --data-dir, 1s to 24h, so that they survive a restart of all nodes; they are also written when the node is told to stop",
			above0(duration, func(o *node.Options) *time.Duration { return &o.SnapshotEvery })},
		{"snapshot-min-window", "DURATION", d.SnapshotMinWindow.String(), "counters that are empty again sooner than this, 1s to 8760h, are not in the snapshots of a running node; the one written at a stop has all",
			above0(duration, func(o *node.Options) *time.Duration { return &o.SnapshotMinWindow })},
		{"forget-counters", "bool", "", "write no snapshots of the counters, and use none",
			boolean(func(o *node.Options) *bool { return &o.ForgetCounters })},
		{"rules", "FILE-or-DIR", "", "file of rules, or a directory of such files (default none: the rules in etcd, see weir rules)",
			text(func(o *node.Options) *string { return &o.Rules })},
		{"rules-files", "WHICH", d.RulesFiles, "which files of the directory in --rules are read: yaml (*.yaml and *.yml directly in it); all (any name, and in directories below); visible (all without a dot at the beginning of a name). As envoyproxy/ratelimit does, runtime and visible-runtime read the same, and files next to the directory that begin with its name and a dot",
			text(func(o *node.Options) *string { return &o.RulesFiles })},
		{"xds-server", "HOST:PORT", "", "xDS server that sends the rules, as Envoy Gateway's does; https://HOST:PORT for one with TLS (default none)",
			text(func(o *node.Options) *string { return &o.XDSServer })},
		{"xds-node-id", "ID", d.XDSNodeID, "node id for which the xDS server has rules; the same on all nodes",
			text(func(o *node.Options) *string { return &o.XDSNodeID })},
		{"xds-metadata", "KEY=VALUE,...", "", "metadata of the node that the xDS server is told (default none)",
			list(func(o *node.Options) *[]string { return &o.XDSMetadata })},
		{"xds-headers", "NAME:VALUE,...", "", "header fields that are sent to the xDS server; beyond loopback with TLS or --insecure only (default none)",
			list(func(o *node.Options) *[]string { return &o.XDSHeaders })},
		{"xds-cert", "FILE", "", "certificate in PEM that an xDS server with TLS is shown; read again for each connection (default none)",
			text(func(o *node.Options) *string { return &o.XDSCert })},
		{"xds-key", "FILE", "", "private key of --xds-cert",
			text(func(o *node.Options) *string { return &o.XDSKey })},
		{"xds-ca", "FILE", "", "CA by which an xDS server with TLS is verified (default the CAs of the system)",
			text(func(o *node.Options) *string { return &o.XDSCA })},
		{"xds-server-name", "NAME", "", "name that the certificate of the xDS server must have (default the host in --xds-server)",
			text(func(o *node.Options) *string { return &o.XDSServerName })},
		{"xds-retry", "DURATION", d.XDSRetry.String(), "longest wait before the xDS server is tried again, 100ms to 1h; it doubles with each attempt, and a random half of it is left out",
			above0(duration, func(o *node.Options) *time.Duration { return &o.XDSRetry })},
		{"xds-retry-max", "DURATION", d.XDSRetryMax.String(), "longest wait between two attempts to reach the xDS server, up to 1h",
			above0(duration, func(o *node.Options) *time.Duration { return &o.XDSRetryMax })},
		{"xds-start-empty", "bool", "", "serve before the xDS server has sent rules, and allow everything until then",
			boolean(func(o *node.Options) *bool { return &o.XDSStartEmpty })},
		{"rls-listen", "HOST:PORT", "", "address for Envoy's rate limit service alone, with a certificate that need not name this node (default none: --grpc serves it)",
			text(func(o *node.Options) *string { return &o.RLSListen })},
		{"rls-cert", "FILE", "", "certificate in PEM that callers of --rls-listen are shown; read again when it changes",
			text(func(o *node.Options) *string { return &o.RLSCert })},
		{"rls-key", "FILE", "", "private key of --rls-cert",
			text(func(o *node.Options) *string { return &o.RLSKey })},
		{"rls-ca", "FILE", "", "CA of the certificates that callers of --rls-listen must show (default none: they need no certificate)",
			text(func(o *node.Options) *string { return &o.RLSCA })},
		{"rls-client-name", "NAME", "", "DNS name that the certificates of these callers must have (default any)",
			text(func(o *node.Options) *string { return &o.RLSClientName })},
		{"insecure", "bool", "", "allow listening beyond loopback without TLS, on a trusted network",
			boolean(func(o *node.Options) *bool { return &o.Insecure })},
		{"tls-cert", "FILE", "", "certificate of this node in PEM, which names its cluster and id, for gRPC, HTTP and between nodes; read again when it changes (default none: no TLS; see weir certs)",
			text(func(o *node.Options) *string { return &o.TLSCert })},
		{"tls-key", "FILE", "", "private key of --tls-cert",
			text(func(o *node.Options) *string { return &o.TLSKey })},
		{"tls-ca", "FILE", "", "CA of the cluster's nodes and clients",
			text(func(o *node.Options) *string { return &o.TLSCA })},
		{"tls-client-auth", "WHICH", d.TLSClientAuth, "with TLS, clients need a certificate of the CA: none, optional (they need one or a token, and one that is shown must be of the CA) or require",
			text(func(o *node.Options) *string { return &o.TLSClientAuth })},
		{"tokens", "FILE", "", "file of the tokens that clients may show instead of a certificate, made by weir tokens; read again when it changes (default none)",
			text(func(o *node.Options) *string { return &o.Tokens })},
		{"audit-log", "FILE-or-stderr", "", "file to which a line of JSON is added for every change that callers ask this node for, or stderr (default none: weir audit shows the last ones)",
			text(func(o *node.Options) *string { return &o.AuditLog })},
		{"trace-endpoint", "URL", "", "collector that gets traces as OTLP over gRPC, such as http://127.0.0.1:4317 (default that of OTEL_EXPORTER_OTLP_ENDPOINT; none: no tracing)",
			text(func(o *node.Options) *string { return &o.TraceEndpoint })},
		{"trace-sample", "SHARE", fmt.Sprint(d.TraceSample), "share of checks that are traced, above 0 and up to 1, unless the caller's traceparent says whether",
			above0(share, func(o *node.Options) *float64 { return &o.TraceSample })},
		{"decision-log", "FILE-or-stdout", "", "file to which a line of JSON is added for every check that --decision-log-which says, or stdout or stderr (default none)",
			text(func(o *node.Options) *string { return &o.DecisionLog })},
		{"decision-log-which", "WHICH", d.DecisionLogWhich, "checks that are logged: denied, sampled (those of a share of all counters) or all",
			text(func(o *node.Options) *string { return &o.DecisionLogWhich })},
		{"decision-log-sample", "SHARE", fmt.Sprint(d.DecisionLogSample), "share of the counters whose checks are logged as sampled, above 0 and up to 1",
			above0(share, func(o *node.Options) *float64 { return &o.DecisionLogSample })},
		{"decision-log-keys", "FORM", d.DecisionLogKeys, "how identifiers, endpoints and attributes are logged: hashed (with the cluster's secret, the same on all nodes) or clear",
			text(func(o *node.Options) *string { return &o.DecisionLogKeys })},
		{"decision-log-size", "SIZE", d.DecisionLogSize.String(), "size at which the file of the decision log is renamed and another begun, 1MiB to 1TiB",
			above0(size, func(o *node.Options) *node.Bytes { return &o.DecisionLogSize })},
		{"decision-log-files", "NUMBER", fmt.Sprint(d.DecisionLogFiles), "renamed files of the decision log that are kept, 1 to 1000; the oldest is removed",
			above0(integer, func(o *node.Options) *int { return &o.DecisionLogFiles })},
		{"top-keys", "FORM", d.TopKeys, "how weir top shows identifiers, endpoints and attributes: clear, hashed (as in the decision log) or off (no lists are kept)",
			text(func(o *node.Options) *string { return &o.TopKeys })},
		{"pprof", "HOST:PORT", "", "address on loopback that serves Go's profiles of this process; port 0 picks a free one (default none)",
			text(func(o *node.Options) *string { return &o.Pprof })},
		{"http-hosts", "NAME,...", "", "host names that HTTP accepts in addition to localhost, IP addresses and the names in this node's own addresses, such as those under which a proxy or Prometheus asks (default none on loopback, all elsewhere)",
			list(func(o *node.Options) *[]string { return &o.HTTPHosts })},
		{"http-headers", "FORM,...", strings.Join(d.HTTPHeaders, ","), "header fields that describe limits to HTTP clients: one of draft (RateLimit and RateLimit-Policy of the IETF's draft 11), draft-7 and draft-6; and x-ratelimit; or none",
			list(func(o *node.Options) *[]string { return &o.HTTPHeaders })},
		{"reset-format", "FORM", d.ResetFormat, "form of X-RateLimit-Reset: delta (seconds from now) or epoch (Unix seconds)",
			text(func(o *node.Options) *string { return &o.ResetFormat })},
		{"retry-jitter", "PERCENT", d.RetryJitter, "longest random delay added to Retry-After, as a share of it, so that denied clients do not all come back at once; 0% to 100%",
			text(func(o *node.Options) *string { return &o.RetryJitter })},
		{"trusted-proxies", "CIDR,...", strings.Join(d.TrustedProxies, ","), "addresses of the proxies that /auth trusts to name the client's address; or none",
			list(func(o *node.Options) *[]string { return &o.TrustedProxies })},
		{"client-ip-header", "HEADER", d.ClientIPHeader, "header field in which trusted proxies name the client's address: X-Forwarded-For, Forwarded or X-Real-Ip",
			text(func(o *node.Options) *string { return &o.ClientIPHeader })},
		{"auth-attribute", "ATTRIBUTE=HEADER,...", "", "header fields that /auth turns into attributes, such as user=X-User, in addition to ip, endpoint and method; the proxy must not let clients set them (default none)",
			list(func(o *node.Options) *[]string { return &o.AuthAttribute })},
		{"auth-max-delay", "DURATION", d.AuthMaxDelay.String(), "longest time that /auth holds a request until its turn, where rules book turns (" + strings.Join(algorithms.NamesOf(algorithms.Algorithm.Queues), ", ") + ", max_delay), up to 5s; a request that would wait longer is denied",
			duration(func(o *node.Options) *time.Duration { return &o.AuthMaxDelay })},
		{"log-level", "LEVEL", d.LogLevel, "lowest level that is logged: debug, info, warn or error",
			text(func(o *node.Options) *string { return &o.LogLevel })},
		{"counter-memory", "SIZE", d.CounterMemory.String(), "most memory for the counters of this node, 8MiB to 4TiB, at about 43 bytes each; " + strings.Join(algorithms.NamesOf(algorithms.Algorithm.Long), " and ") + " take up to 256MiB in addition",
			above0(size, func(o *node.Options) *node.Bytes { return &o.CounterMemory })},
		{"peer-timeout", "DURATION", d.PeerTimeout.String(), "longest wait for the owner of a counter, 1ms to 10s, before its standby is asked; if neither answers, the rule's on_failure decides",
			above0(duration, func(o *node.Options) *time.Duration { return &o.PeerTimeout })},
		{"domain-weights", "DOMAIN=WEIGHT,...", "", "parts of this node's time that domains have while it is asked for more than it can answer, such as shop=3; 0.01 to 100 (default 1 for all)",
			list(func(o *node.Options) *[]string { return &o.DomainWeights })},
		{"forget-denials", "bool", "", "ask the owner of a counter again right after a denial, instead of remembering the denial for up to 20ms",
			boolean(func(o *node.Options) *bool { return &o.ForgetDenials })},
		{"lend-nothing", "bool", "", "neither lend tokens of often used counters to other nodes and clients, nor borrow any",
			boolean(func(o *node.Options) *bool { return &o.LendNothing })},
		{"lyft-algorithm", "NAME", d.LyftAlgorithm, "algorithm of the limits in files of envoyproxy/ratelimit: " + strings.Join(node.LyftAlgorithms(), ", ") + "; the same on all nodes",
			text(func(o *node.Options) *string { return &o.LyftAlgorithm })},
		{"merge-domains", "bool", "", "allow several files of envoyproxy/ratelimit for one domain",
			boolean(func(o *node.Options) *bool { return &o.MergeDomains })},
		{"rls-count-denied", "bool", "", "in Envoy's API, count each descriptor by itself, and also when it is over its limit, as envoyproxy/ratelimit does",
			boolean(func(o *node.Options) *bool { return &o.RLSCountDenied })},
		{"rls-shadow", "bool", "", "in Envoy's API, deny no request, and only report which ones would be denied",
			boolean(func(o *node.Options) *bool { return &o.RLSShadow })},
		{"rls-quota", "bool", "", "in Envoy's API, treat all descriptors as if they had quota_mode",
			boolean(func(o *node.Options) *bool { return &o.RLSQuota })},
		{"rls-headers", "NAME,...", "", "in Envoy's API, names of three header fields for the limit, what remains, and the seconds until it is reset; a denial gets Retry-After as well (default none)",
			list(func(o *node.Options) *[]string { return &o.RLSHeaders })},
		{"rls-metadata", "bool", "", "in Envoy's API, answer with dynamic metadata",
			boolean(func(o *node.Options) *bool { return &o.RLSMetadata })},
		{"rls-near-limit", "SHARE", fmt.Sprint(d.RLSNearLimit), "share of a descriptor's limit, above 0 and up to 1, from which on metrics count hits as near the limit",
			above0(share, func(o *node.Options) *float64 { return &o.RLSNearLimit })},
		{"health-needs-rules", "bool", "", `report the service "ratelimit" as unhealthy while there are no rules`,
			boolean(func(o *node.Options) *bool { return &o.HealthNeedsRules })},
	}
}

func text(field func(*node.Options) *string) func(*node.Options, string) error {
	return func(o *node.Options, text string) error {
		*field(o) = text
		return nil
	}
}

func list(field func(*node.Options) *[]string) func(*node.Options, string) error {
	return func(o *node.Options, text string) error {
		*field(o) = nil
		if text == "" {
			return nil
		}
		for item := range strings.SplitSeq(text, ",") {
			*field(o) = append(*field(o), strings.TrimSpace(item))
		}
		return nil
	}
}

func boolean(field func(*node.Options) *bool) func(*node.Options, string) error {
	return func(o *node.Options, text string) error {
		value, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is not true or false", text)
		}
		*field(o) = value
		return nil
	}
}

func size(field func(*node.Options) *node.Bytes) func(*node.Options, string) error {
	return func(o *node.Options, text string) error {
		value, err := humanize.ParseBytes(text)
		if err != nil || value > math.MaxInt64 {
			return fmt.Errorf("%q is not a size, such as 512MiB or 8GiB", text)
		}
		*field(o) = node.Bytes(value)
		return nil
	}
}

func share(field func(*node.Options) *float64) func(*node.Options, string) error {
	return func(o *node.Options, text string) error {
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("%q is not a share, such as 0.8", text)
		}
		*field(o) = value
		return nil
	}
}

func integer(field func(*node.Options) *int) func(*node.Options, string) error {
	return func(o *node.Options, text string) error {
		value, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is not a number, such as 10", text)
		}
		*field(o) = value
		return nil
	}
}

func duration(field func(*node.Options) *time.Duration) func(*node.Options, string) error {
	return func(o *node.Options, text string) error {
		value, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not a duration, such as 25ms or 1s", text)
		}
		*field(o) = value
		return nil
	}
}

// above0 refuses 0 for a field whose zero value stands for its default.
func above0[T cmp.Ordered](kind func(func(*node.Options) *T) func(*node.Options, string) error, field func(*node.Options) *T) func(*node.Options, string) error {
	set := kind(field)
	return func(o *node.Options, text string) error {
		if err := set(o, text); err != nil {
			return err
		}
		var zero T
		if *field(o) == zero {
			return fmt.Errorf("%q is not above 0", text)
		}
		return nil
	}
}

// variable is the environment variable of a flag: WEIR_ETCD_LISTEN of etcd-listen.
func variable(flag string) string {
	return "WEIR_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// flagText is a flag's value as it was typed. It is understood only together
// with the other places that an option can come from, so that all of them obey
// one syntax and answer a mistake alike.
type flagText struct {
	option
	text  string
	given bool
}

func (f *flagText) String() string { return f.text }

// Type is what help calls the value. pflag knows "bool".
func (f *flagText) Type() string { return f.kind }

// Set keeps the last value, or all of a list.
func (f *flagText) Set(text string) error {
	if f.given && f.isList() {
		text = f.text + "," + text
	}
	f.text, f.given = text, true
	return nil
}

// addOptions defines a flag for each option, and --config.
func addOptions(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.String("config", "", "read options from this YAML `FILE`")
	for _, o := range options() {
		flag := flags.VarPF(&flagText{option: o}, o.name, "", o.usage)
		flag.DefValue = o.initial
		if o.kind == "bool" {
			flag.NoOptDefVal = "true"
		}
	}
}

// given is the value of an option and where it was given, such as "--grpc",
// "WEIR_GRPC" or "weir.yaml:3: grpc".
type given struct{ text, where string }

// readOptions puts node.Options together: a flag wins over the environment, that
// over the environment that envoyproxy/ratelimit has, that over the file, and that
// over the default. An empty variable counts as unset, as scripts and compose files
// pass on what they do not know. It also returns the values that are given, by option. The
// error has a line for each value that is bad; the options are then those that were understood.
func readOptions(flags *pflag.FlagSet, env map[string]string) (node.Options, map[string]given, error) {
	config := given{flags.Lookup("config").Value.String(), "--config"}
	if !flags.Changed("config") {
		config = given{env[variable("config")], variable("config")}
	}
	file, fileErr := readFile(config)
	lyft, lyftErr := lyftOptions(env, func(option string) string {
		if flags.Changed(option) {
			return flags.Lookup(option).Value.String()
		}
		return cmp.Or(env[variable(option)], file[option].text)
	})
	problems := []error{fileErr, lyftErr}

	var opts node.Options
	values := make(map[string]given)
	for _, option := range options() {
		value, ok := file[option.name]
		if v, understood := lyft[option.name]; understood {
			value, ok = v, true
		}
		if text := env[variable(option.name)]; text != "" {
			value, ok = given{text, variable(option.name)}, true
		}
		if flags.Changed(option.name) {
			value, ok = given{flags.Lookup(option.name).Value.String(), "--" + option.name}, true
		}
		if !ok {
			continue
		}
		values[option.name] = value
		if err := option.set(&opts, value.text); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", value.where, err))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return opts, nil, err // what Validate says could follow from that
	}
	if err := opts.Validate(); err != nil {
		return opts, nil, locateProblems(err, values)
	}
	return opts.WithDefaults(), values, nil
}

// locateProblems says where each option was given that is bad, or with which flag to mend
// its default.
func locateProblems(err error, values map[string]given) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	var problems []error
	for _, err := range joined.Unwrap() {
		if bad, ok := errors.AsType[*node.OptionError](err); ok {
			where := cmp.Or(values[bad.Name].where, "--"+bad.Name)
			err = fmt.Errorf("%s: %s", where, bad.Problem)
		}
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// What Kubernetes and Docker put into the environment of a container for a
// service called weir or weir-something. The names in serviceURLVariable, such
// as WEIR_PORT, could as well be a mistake for an option: their values tell.
var (
	serviceVariable = regexp.MustCompile(`^WEIR_([A-Z0-9_]+_)?SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)$|` +
		`^WEIR_([A-Z0-9_]+_)?PORT_[0-9]+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR)$`)
	serviceURLVariable = regexp.MustCompile(`^WEIR_([A-Z0-9_]+_)?PORT(_[0-9]+_(TCP|UDP|SCTP))?$`)
	serviceURL         = regexp.MustCompile(`^(tcp|udp|sctp)://`)
)

// unknownVariables returns the variables that look like options of weir and are
// none, each with a suggestion. They are not refused, as an environment is often
// shared with other programs; those of a service named weir are no mistake.
func unknownVariables(env map[string]string) []string {
	known := []string{variable("config"), variable("node"), variable("token"), variable("token-file")}
	for _, o := range options() {
		known = append(known, variable(o.name))
	}
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		isService := serviceVariable.MatchString(name) ||
			serviceURLVariable.MatchString(name) && serviceURL.MatchString(env[name])
		if strings.HasPrefix(name, "WEIR_") && !isService && !slices.Contains(known, name) {
			unknown = append(unknown, name+didYouMean(name, known))
		}
	}
	return unknown
}
