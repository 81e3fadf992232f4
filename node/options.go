package node

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/net/http/httpguts"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/api/envoy"
	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/etcd"
	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/internal/decisionlog"
	"github.com/weirlimit/weir/rules"
	envoyrules "github.com/weirlimit/weir/rules/envoy"
)

// Options say how to run a node. The zero value is a node that serves on
// loopback with an etcd of its own. Command weir fills them from flags, the
// environment and a file, under names that follow the fields': EtcdListen is
// etcd-listen.
type Options struct {
	// ID names the node in its cluster, 1 to 128 bytes of letters, digits, '.',
	// '_' and '-'. A node that is restarted under its ID takes its old place.
	// Empty means the host's name and the gRPC port, as in "host-9090".
	ID string
	// GRPC is where to listen for gRPC, from clients and other nodes, as
	// host:port. Port 0 picks a free one. Default 127.0.0.1:9090.
	GRPC string
	// HTTP is where to listen for HTTP, as host:port. Port 0 picks a free one.
	// Default 127.0.0.1:8080.
	HTTP string
	// Admin is where to listen for admin calls, over gRPC and HTTP alike, as host:port: metrics, profiles,
	// health details, and changes of rules, counters and the cluster. GRPC and HTTP then have none of
	// them. Port 0 picks a free one. Empty means none: GRPC and HTTP serve all, except profiles.
	Admin string
	// Advertise is where other nodes reach this node's gRPC, as host:port. Empty
	// means the address in GRPC, which must then name one host, not 0.0.0.0.
	Advertise string
	// Cluster names the cluster: nodes of one etcd and one name share their
	// limits. 1 to 64 bytes of letters, digits, '.', '_' and '-'. Default "default".
	Cluster string
	// Etcd lists the endpoints of an etcd cluster, as host:port, http://host:port or, of one with
	// TLS, https://host:port. Empty means to run one in this process.
	Etcd []string
	// EtcdCert is the file of the certificate, in PEM, that this node shows to an etcd with TLS. Empty means TLSCert,
	// or none if EtcdCA is given.
	EtcdCert string
	// EtcdKey is the file of the certificate's private key. Empty means none, as without EtcdCert.
	EtcdKey string
	// EtcdCA is the file of the CA by which an etcd with TLS is verified. Empty means TLSCA if EtcdCert is not given
	// either, and else, or without TLSCA, the CAs of the system.
	EtcdCA string
	// EtcdUser is the name of a user of an etcd with authentication. Empty means none.
	EtcdUser string
	// EtcdPasswordFile is the file of the user's password, read when the node starts. Empty means none, as without
	// EtcdUser.
	EtcdPasswordFile string
	// EtcdWait is how long a node that has never run waits for etcd before it ends with an error, 1s to 1h. Default 5s.
	EtcdWait time.Duration
	// EtcdListen is where the etcd in this process listens, as host:port, so that
	// more nodes can join: beyond loopback with TLSCert, for nodes of the cluster and clients with the role admin.
	// Port 0 picks a free one. Default 127.0.0.1:2379. Unused if Etcd is given.
	EtcdListen string
	// DataDir holds what must survive a restart: the data of the etcd in this
	// process, and what a node needs to start while etcd is unreachable, the secret of
	// the cluster included. It is created if missing. Empty means weir/<ID> under
	// $XDG_STATE_HOME, or under ~/.local/state if that is not set.
	DataDir string
	// SnapshotEvery is how often the counters are written to DataDir, 1s to 24h, so that they survive a restart of
	// all nodes. They are also written when the node is told to stop. 0 means the default, 1m0s.
	SnapshotEvery time.Duration
	// SnapshotMinWindow is how much longer than its time a snapshot has the counters matter that are in it, 1s to
	// 8760h; one that is written at a stop has all counters. 0 means the default, 10m0s.
	SnapshotMinWindow time.Duration
	// ForgetCounters makes this node write no snapshots, and use none. Default false.
	ForgetCounters bool
	// Rules is the rules file, or a directory of them. Empty means the rules of the
	// cluster, which stand in etcd.
	Rules string
	// RulesFiles are the files of a directory of Rules that are read: yaml, which are *.yaml and *.yml
	// directly in it; all, of any name and below as well, or visible, all but those behind a dot; runtime
	// or visible-runtime, these and the files next to the directory whose names begin with its name and a
	// dot, as envoyproxy/ratelimit reads them. Default yaml.
	RulesFiles string
	// XDSServer is the address of an xDS server that sends the rules, as host:port or, of one with TLS, https://host:port.
	// Empty means none. Not with Rules.
	XDSServer string
	// XDSNodeID is how this node names itself to the xDS server; all nodes of a cluster have the same. Default "default".
	XDSNodeID string
	// XDSMetadata lists what this node says of itself to the xDS server, as KEY=VALUE, 64 at most. Empty means nothing.
	XDSMetadata []string
	// XDSHeaders lists header fields that are sent to the xDS server, as NAME:VALUE, 64 at most. Empty means none.
	XDSHeaders []string
	// XDSCert is the file of the certificate, in PEM, that this node shows to an xDS server with TLS. Empty means none.
	XDSCert string
	// XDSKey is the file of the certificate's private key. Empty means none, as without XDSCert.
	XDSKey string
	// XDSCA is the file of the CA by which an xDS server with TLS is verified. Empty means the CAs of the system.
	XDSCA string
	// XDSServerName is the name that the certificate of the xDS server must have. Empty means the host in XDSServer.
	XDSServerName string
	// XDSRetry is the longest wait before the first new attempt to reach the xDS server, 100ms to 1h. It doubles with
	// each attempt in vain; a random half of it is left out. 0 means the default, 1s.
	XDSRetry time.Duration
	// XDSRetryMax is the longest wait between two attempts, XDSRetry to 1h. 0 means the default, 30s or XDSRetry.
	XDSRetryMax time.Duration
	// XDSStartEmpty makes this node serve before the xDS server has sent rules: everything is allowed until then.
	// Default false.
	XDSStartEmpty bool
	// RLSListen is where to listen for Envoy's rate limit service alone, with a certificate that need not name this node, as
	// host:port. Port 0 picks a free one. Empty means none: GRPC serves it, too.
	RLSListen string
	// RLSCert is the file of the certificate, in PEM, that callers of RLSListen are shown. Empty means none, as without RLSListen.
	RLSCert string
	// RLSKey is the file of the certificate's private key. Empty means none, as without RLSListen.
	RLSKey string
	// RLSCA is the file of the CA by which callers of RLSListen are verified. Empty means that they need no certificate.
	RLSCA string
	// RLSClientName is the DNS name that certificates of these callers must have. Empty means any.
	RLSClientName string
	// Insecure permits to listen beyond loopback without TLS. Default false. Not with TLSCert.
	Insecure bool
	// TLSCert is the file of this node's certificate, in PEM, with what stands between it and
	// the CA; "weir certs" makes it. It names the cluster and the id of this node. Empty means
	// no TLS.
	TLSCert string
	// TLSKey is the file of the certificate's private key. Empty means none, as without TLSCert.
	TLSKey string
	// TLSCA is the file of the CA of the cluster's nodes and clients. Empty means none, as without TLSCert.
	TLSCA string
	// TLSClientAuth says whether clients of gRPC and HTTP need a certificate of the CA: none,
	// optional or require. Nodes always do. A token is as good as a certificate. Default optional.
	TLSClientAuth string
	// Tokens is the file of the tokens that clients may show, with TLS. Empty means none.
	Tokens string
	// AuditLog is the file to which a line of JSON is added for every change that callers ask for, or
	// stderr. Empty means none: the last changes are kept in memory in any case.
	AuditLog string
	// TraceEndpoint is the URL of an OpenTelemetry collector that takes OTLP over gRPC. Empty means the one of
	// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT in the environment, or else that there is no tracing.
	TraceEndpoint string
	// TraceSample is the share of the checks that are traced if their callers do not say, above 0 and up to 1. 0 means the
	// default, 0.01.
	TraceSample float64
	// DecisionLog is the file to which a line of JSON is added for every check that DecisionLogWhich says, or stdout or
	// stderr. Empty means none.
	DecisionLog string
	// DecisionLogWhich says which checks are logged: denied, sampled (those of a share of all counters) or all. Empty
	// means denied.
	DecisionLogWhich string
	// DecisionLogSample is the share of the counters whose checks are logged as sampled, above 0 and up to 1. 0 means the
	// default, 0.01.
	DecisionLogSample float64
	// DecisionLogKeys says how values of identifiers, endpoints and attributes are written: hashed with the cluster's
	// secret, or clear. Empty means hashed.
	DecisionLogKeys string
	// DecisionLogSize is the size at which the file is renamed and another begun, 1 MiB to 1 TiB, in whole MiB. 0 means
	// the default, 100MiB.
	DecisionLogSize Bytes
	// DecisionLogFiles is how many renamed files are kept, 1 to 1000. 0 means the default, 10.
	DecisionLogFiles int
	// TopKeys says how the lists of the keys that are asked for most have values of identifiers, endpoints and attributes:
	// clear, hashed as in the decision log, or off for no lists. Empty means clear.
	TopKeys string
	// Pprof is where to serve Go's profiles of this process, as host:port on loopback. Port 0
	// picks a free one, which the log tells. Empty means not to.
	Pprof string
	// HTTPHosts are names, without ports, that requests to HTTP may have as Host in addition to localhost,
	// addresses, and the names in Advertise, GRPC, HTTP and Admin; 64 at most. Others are refused on loopback, and on every address if there is a name here, so
	// that no web page can ask under a name of its own. Empty means none on loopback, and all elsewhere.
	HTTPHosts []string
	// HTTPHeaders are the forms in which HTTP answers tell of limits: one of draft, draft-7
	// and draft-6, which are versions of the IETF's, and x-ratelimit; or none alone. Empty
	// means draft and x-ratelimit.
	HTTPHeaders []string
	// ResetFormat is how X-RateLimit-Reset is written: delta, in seconds from now, or epoch,
	// in Unix seconds. Default delta.
	ResetFormat string
	// RetryJitter is how much longer than it must a denied client is told at most to wait,
	// 0% to 100%, so that not all come back at once. Default 10%.
	RetryJitter string
	// TrustedProxies are the addresses, and blocks of them, whose word on the client's
	// address is taken by /auth; or none alone. Empty means 127.0.0.0/8 and ::1, which is
	// this machine.
	TrustedProxies []string
	// ClientIPHeader is where they say it: X-Forwarded-For, Forwarded or X-Real-Ip. Default
	// X-Forwarded-For.
	ClientIPHeader string
	// AuthAttribute lists the header fields that /auth makes attributes, as attribute=Header,
	// 13 at most. Empty means none.
	AuthAttribute []string
	// AuthMaxDelay is how long /auth may hold a request until its turn comes, where rules book turns, up to
	// 5 s. Requests that would wait for longer are denied. Default 0s, so that none is held.
	AuthMaxDelay time.Duration
	// LogLevel is debug, info, warn or error: the least level that the program
	// logs. Default info.
	LogLevel string
	// CounterMemory bounds the memory of this node's counters, 8MiB to 4TiB. 0 means the
	// default, 1.0GiB, which is enough for about 25,000,000.
	CounterMemory Bytes
	// PeerTimeout is the most that a check waits for the node that owns its counter, 1 ms to 10 s; it never
	// waits for more than 40 % of its caller's own time. After it the standby is asked, and only if no node
	// answers does the rule's on_failure decide. 0 means the default, 25ms.
	PeerTimeout time.Duration
	// DomainWeights are parts of this node's time that domains have while it is asked for more than it can answer, as
	// DOMAIN=WEIGHT with weights of 0.01 to 100, 256 at most. A domain of weight 3 has three times the part of one of
	// weight 1, if it asks for as much. Empty means that all have the weight 1.
	DomainWeights []string
	// ForgetDenials makes this node ask the owner of a counter again although it has
	// denied just now, and has its peers do so. Otherwise a denial may be remembered
	// for up to 20 ms, and resets and refunds wait until it is forgotten. Default false.
	ForgetDenials bool
	// LendNothing makes this node lend no tokens of counters that are asked for often,
	// neither to other nodes nor to clients, and borrow none. Default false.
	LendNothing bool
	// LyftAlgorithm is what the limits of envoyproxy/ratelimit's files count by, one of
	// LyftAlgorithms. Nodes of one cluster need the same. Default fixed_window, as there.
	LyftAlgorithm string
	// MergeDomains permits several of envoyproxy/ratelimit's files for one domain. Default
	// false.
	MergeDomains bool
	// RLSCountDenied makes Envoy's API count each descriptor by itself and also when it is
	// over its limit, as envoyproxy/ratelimit does, instead of a request whole or not at
	// all. Not with token_bucket and gcra. Default false.
	RLSCountDenied bool
	// RLSShadow makes Envoy's API deny no request; statuses tell what would have. Default
	// false.
	RLSShadow bool
	// RLSQuota makes Envoy's API treat all descriptors as if they had quota_mode. Default
	// false.
	RLSQuota bool
	// RLSHeaders are the names of three headers that answers to Envoy add to responses:
	// for the limit, for what remains, and for the seconds until it is reset. A denied
	// request gets Retry-After, too. Empty means no headers.
	RLSHeaders []string
	// RLSMetadata adds the request, and the metadata of the descriptors that allowed it, to answers to
	// Envoy as dynamic metadata. Default false.
	RLSMetadata bool
	// RLSNearLimit is the share of a limit from which on metrics count hits of descriptors
	// as near it, above 0 and up to 1. 0 means the default, 0.8.
	RLSNearLimit float64
	// HealthNeedsRules makes the health of the service "ratelimit", and GET /healthcheck,
	// bad while there are no rules. Default false.
	HealthNeedsRules bool
}

// Bytes is a size of memory.
type Bytes int64

// String returns the size as 512MiB, rounded to three digits.
func (b Bytes) String() string {
	if b < 0 {
		return "-" + (-b).String()
	}
	return strings.ReplaceAll(humanize.IBytes(uint64(b)), " ", "")
}

// Defaults and bounds of Options; the fields say what they mean.
const (
	defaultGRPC          = "127.0.0.1:9090"
	defaultHTTP          = "127.0.0.1:8080"
	defaultCluster       = "default"
	defaultEtcdListen    = "127.0.0.1:2379"
	defaultLogLevel      = "info"
	defaultCounterMemory = 1 << 30
	defaultPeerTimeout   = cluster.DefaultAttemptTimeout
	defaultLyftAlgorithm = "fixed_window"
	defaultRLSNearLimit  = 0.8

	defaultTraceSample       = 0.01
	defaultDecisionLogSample = 0.01
	defaultDecisionLogSize   = 100 << 20
	defaultDecisionLogFiles  = 10

	defaultSnapshotEvery     = time.Minute
	defaultSnapshotMinWindow = 10 * time.Minute
	minEtcdWait              = time.Second
	maxEtcdWait              = time.Hour
	minSnapshotEvery         = time.Second
	maxSnapshotEvery         = 24 * time.Hour
	minSnapshotWindow        = time.Second
	maxSnapshotWindow        = 365 * 24 * time.Hour

	maxIDBytes       = 128
	maxClusterBytes  = 64
	minCounterMemory = 8 << 20
	maxCounterMemory = 4 << 40
	minPeerTimeout   = time.Millisecond
	maxPeerTimeout   = 10 * time.Second
)

// LyftAlgorithms lists what Options.LyftAlgorithm may be: the algorithms that can count any
// limit, without a delay that Envoy could not make.
func LyftAlgorithms() []string {
	return algorithms.NamesOf(countsLyft)
}

// lyftWindows lists the LyftAlgorithms that count in windows.
func lyftWindows() []string {
	return algorithms.NamesOf(func(a algorithms.Algorithm) bool { return countsLyft(a) && !a.Drains() })
}

func countsLyft(a algorithms.Algorithm) bool {
	return !a.Queues() && a.MostTokens() == algorithms.MaxLimit
}

var logLevels = []string{"debug", "info", "warn", "error"}

// OptionError names the option that cannot be used and the reason, so that the reader of the option can add
// where it was set.
type OptionError struct {
	// Name is the option as flags and files spell it, such as "etcd-listen".
	Name string
	// Problem names the value and what is allowed instead.
	Problem string
}

// Error returns "name: problem".
func (e *OptionError) Error() string { return e.Name + ": " + e.Problem }

// WithDefaults returns o with every empty field that has a default filled, and
// with Etcd written as host:port.
//
// The defaults of ID, Advertise and DataDir contain the port of GRPC. While that
// is 0 they stay empty: call WithDefaults again with the address that was bound.
func (o Options) WithDefaults() Options {
	fill(&o.GRPC, defaultGRPC)
	fill(&o.HTTP, defaultHTTP)
	fill(&o.Cluster, defaultCluster)
	fill(&o.EtcdListen, defaultEtcdListen)
	fill(&o.LogLevel, defaultLogLevel)
	fill(&o.ResetFormat, resetDelta)
	fill(&o.RetryJitter, defaultRetryJitter)
	fill(&o.ClientIPHeader, defaultClientIPHeader)
	if len(o.HTTPHeaders) == 0 {
		o.HTTPHeaders = []string{"draft", "x-ratelimit"}
	}
	if len(o.TrustedProxies) == 0 {
		o.TrustedProxies = []string{"127.0.0.0/8", "::1"}
	}
	fill(&o.TLSClientAuth, string(certs.Optional))
	fill(&o.RulesFiles, rules.YAMLFiles.String())
	fill(&o.LyftAlgorithm, defaultLyftAlgorithm)
	fill(&o.XDSNodeID, defaultXDSNodeID)
	if o.XDSRetry == 0 {
		o.XDSRetry = defaultXDSRetry
		if o.XDSRetryMax > 0 {
			o.XDSRetry = min(o.XDSRetry, o.XDSRetryMax)
		}
	}
	if o.XDSRetryMax == 0 {
		o.XDSRetryMax = max(o.XDSRetry, defaultXDSRetryMax)
	}
	if o.RLSNearLimit == 0 {
		o.RLSNearLimit = defaultRLSNearLimit
	}
	if o.TraceSample == 0 {
		o.TraceSample = defaultTraceSample
	}
	fill(&o.DecisionLogWhich, decisionlog.Denied)
	fill(&o.DecisionLogKeys, decisionlog.Hashed)
	fill(&o.TopKeys, decisionlog.Clear)
	if o.DecisionLogSample == 0 {
		o.DecisionLogSample = defaultDecisionLogSample
	}
	if o.DecisionLogSize == 0 {
		o.DecisionLogSize = defaultDecisionLogSize
	}
	if o.DecisionLogFiles == 0 {
		o.DecisionLogFiles = defaultDecisionLogFiles
	}
	if o.PeerTimeout == 0 {
		o.PeerTimeout = defaultPeerTimeout
	}
	if o.EtcdWait == 0 {
		o.EtcdWait = etcd.DefaultWait
	}
	if o.SnapshotEvery == 0 {
		o.SnapshotEvery = defaultSnapshotEvery
	}
	if o.SnapshotMinWindow == 0 {
		o.SnapshotMinWindow = defaultSnapshotMinWindow
	}
	if o.CounterMemory == 0 {
		o.CounterMemory = defaultCounterMemory
	}
	var etcd []string // not o.Etcd in place: that is the caller's
	for _, endpoint := range o.Etcd {
		etcd = append(etcd, strings.TrimSuffix(strings.TrimPrefix(endpoint, "http://"), "/"))
	}
	o.Etcd = etcd
	if host, port, err := net.SplitHostPort(o.GRPC); err == nil && port != "0" {
		fill(&o.ID, hostName()+"-"+port)
		if !isWildcard(host) {
			fill(&o.Advertise, o.GRPC)
		}
	}
	if dir := stateHome(); dir != "" && o.ID != "" {
		fill(&o.DataDir, filepath.Join(dir, "weir", o.ID))
	}
	return o
}

// Validate reports the options that cannot be used: the error joins an *OptionError for
// each. An empty field is as good as its default. It looks at nothing but the values, and at whether DataDir is a file:
// whether a port is free or another file is there shows when the node starts.
func (o Options) Validate() error {
	o = o.WithDefaults()
	checks := []struct{ name, problem string }{
		{"id", badName(o.ID, maxIDBytes)},
		{"grpc", o.badListener(o.GRPC)},
		{"http", o.badListener(o.HTTP)},
		{"admin", o.badAdmin()},
		{"advertise", o.badAdvertise()},
		{"cluster", badName(o.Cluster, maxClusterBytes)},
		{"etcd", o.badEtcd()},
		{"etcd-cert", o.badEtcdFiles()},
		{"etcd-user", o.badEtcdUser()},
		{"etcd-listen", o.badEtcdListen()},
		{"data-dir", o.badDataDir()},
		{"etcd-wait", badDuration(o.EtcdWait, minEtcdWait, maxEtcdWait)},
		{"snapshot-every", badDuration(o.SnapshotEvery, minSnapshotEvery, maxSnapshotEvery)},
		{"snapshot-min-window", badDuration(o.SnapshotMinWindow, minSnapshotWindow, maxSnapshotWindow)},
		{"tls-cert", o.badTLS()},
		{"tls-client-auth", o.badClientAuth()},
		{"rules-files", badRulesFiles(o.RulesFiles)},
		{"xds-server", o.badXDS()},
		{"xds-metadata", badXDSMetadata(o.XDSMetadata)},
		{"xds-headers", o.badXDSHeaders()},
		{"xds-cert", o.badXDSCert()},
		{"xds-retry", o.badXDSRetry()},
		{"xds-retry-max", badDuration(o.XDSRetryMax, minXDSRetry, maxXDSRetry)},
		{"rls-listen", o.badRLS()},
		{"tokens", o.badTokens()},
		{"trace-endpoint", badTraceEndpoint(o.TraceEndpoint)},
		{"trace-sample", badShare(o.TraceSample)},
		{"decision-log-which", badOneOf(o.DecisionLogWhich, decisionlog.Whiches)},
		{"decision-log-sample", badShare(o.DecisionLogSample)},
		{"decision-log-keys", badOneOf(o.DecisionLogKeys, decisionlog.Forms)},
		{"decision-log-size", badDecisionLogSize(o.DecisionLogSize)},
		{"decision-log-files", badDecisionLogFiles(o.DecisionLogFiles)},
		{"top-keys", badOneOf(o.TopKeys, topKeysForms)},
		{"pprof", o.badPprof()},
		{"http-hosts", badHTTPHosts(o.HTTPHosts)},
		{"http-headers", badHTTPHeaders(o.HTTPHeaders)},
		{"reset-format", o.badResetFormat()},
		{"retry-jitter", badRetryJitter(o.RetryJitter)},
		{"trusted-proxies", badTrustedProxies(o.TrustedProxies)},
		{"client-ip-header", badClientIPHeader(o.ClientIPHeader)},
		{"auth-attribute", badAuthAttributes(o.AuthAttribute)},
		{"auth-max-delay", badAuthMaxDelay(o.AuthMaxDelay)},
		{"log-level", badLogLevel(o.LogLevel)},
		{"counter-memory", badCounterMemory(o.CounterMemory)},
		{"peer-timeout", badDuration(o.PeerTimeout, minPeerTimeout, maxPeerTimeout)},
		{"domain-weights", badDomainWeights(o.DomainWeights)},
		{"lyft-algorithm", badLyftAlgorithm(o.LyftAlgorithm)},
		{"rls-count-denied", o.badCountDenied()},
		{"rls-headers", badHeaders(o.RLSHeaders)},
		{"rls-near-limit", badShare(o.RLSNearLimit)},
	}
	var problems []error
	for _, c := range checks {
		if c.problem != "" {
			problems = append(problems, &OptionError{Name: c.name, Problem: c.problem})
		}
	}
	return errors.Join(problems...)
}

func fill(field *string, value string) {
	if *field == "" {
		*field = value
	}
}

// hostName returns the host's name in the alphabet of ID, with room for a port.
func hostName() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "localhost"
	}
	name = strings.Map(func(r rune) rune {
		if isNameByte(r) {
			return r
		}
		return '-'
	}, name)
	return name[:min(len(name), maxIDBytes-len("-65535"))]
}

// stateHome returns the directory for data that outlives a process, by the XDG
// base directory specification, or nothing if the user has none.
func stateHome() string {
	// The specification says to ignore a relative path.
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return dir
	}
	if home, err := os.UserHomeDir(); err == nil && home != "" {
		return filepath.Join(home, ".local", "state")
	}
	return ""
}

// The bad… functions return what is wrong with a value, or nothing.

// badName lets an empty name pass: it stands for the default.
func badName(name string, maxBytes int) string {
	switch {
	case len(name) > maxBytes:
		return fmt.Sprintf("%.16q... has %d bytes, at most %d are allowed", name, len(name), maxBytes)
	case name == "." || name == "..": // they would name another directory
		return fmt.Sprintf("%q is not a name", name)
	case strings.ContainsFunc(name, func(r rune) bool { return !isNameByte(r) }):
		return fmt.Sprintf("%q has more than letters, digits, '.', '_' and '-'", name)
	}
	return ""
}

func isNameByte(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
		r == '.' || r == '_' || r == '-'
}

// badHostPort checks the syntax only. An empty host passes.
func badHostPort(address string, minPort uint64) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Sprintf("%q is not host:port, such as %s", address, defaultGRPC)
	}
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number < minPort {
		return fmt.Sprintf("%q has the port %q, allowed is %d to 65535", address, port, minPort)
	}
	if _, err := netip.ParseAddr(host); err != nil && badName(host, 253) != "" {
		return fmt.Sprintf("%q has the host %q, which is neither a name nor an IP address", address, host)
	}
	return ""
}

func (o Options) badListener(address string) string {
	if problem := badHostPort(address, 0); problem != "" {
		return problem
	}
	host, port, _ := net.SplitHostPort(address)
	if o.Insecure || o.TLSCert != "" || isLoopback(host) {
		return ""
	}
	return fmt.Sprintf("%s is reachable from other machines and there is no TLS; pass --tls-cert, "+
		"--tls-key and --tls-ca, listen on 127.0.0.1:%s, or pass --insecure if the network is trusted", address, port)
}

func (o Options) badAdvertise() string {
	if o.badListener(o.GRPC) != "" {
		return "" // what is wrong with advertise may follow from that
	}
	_, port, _ := net.SplitHostPort(o.GRPC)
	if o.Advertise == "" {
		if host, _, _ := net.SplitHostPort(o.GRPC); !isWildcard(host) {
			return "" // the port of GRPC is not known yet
		}
		return fmt.Sprintf("must be given because grpc listens on %s, which names no host that "+
			"others can reach; pass for example --advertise HOST:%s", o.GRPC, port)
	}
	if problem := badHostPort(o.Advertise, 1); problem != "" {
		return problem
	}
	host, _, _ := net.SplitHostPort(o.Advertise)
	if addr, err := netip.ParseAddr(host); err == nil && addr.Zone() != "" {
		return fmt.Sprintf("%s has the zone %q, which means something on this machine only", o.Advertise, addr.Zone())
	}
	if isWildcard(host) {
		return fmt.Sprintf("%s names no host that others can reach; allowed is the name or the "+
			"IP address of this machine", o.Advertise)
	}
	return ""
}

// isWildcard reports whether listening on host means all interfaces.
func isWildcard(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "" || err == nil && addr.Unmap().IsUnspecified()
}

// isLoopback does not resolve names: what they stand for may change.
func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && addr.Unmap().IsLoopback()
}

func (o Options) badDataDir() string {
	if o.DataDir == "" && len(o.Etcd) == 0 && stateHome() == "" {
		return "must be given because neither XDG_STATE_HOME nor HOME is set"
	}
	if info, err := os.Stat(o.DataDir); err == nil && !info.IsDir() {
		return fmt.Sprintf("%q is not a directory", o.DataDir)
	}
	return ""
}

func badLogLevel(level string) string {
	if slices.Contains(logLevels, level) {
		return ""
	}
	return fmt.Sprintf("%q is not one of %s", level, strings.Join(logLevels, ", "))
}

func badCounterMemory(n Bytes) string {
	if n >= minCounterMemory && n <= maxCounterMemory {
		return ""
	}
	return fmt.Sprintf("%v is not between %v and %v", n, Bytes(minCounterMemory), Bytes(maxCounterMemory))
}

func badDuration(d, least, most time.Duration) string {
	if d >= least && d <= most {
		return ""
	}
	return fmt.Sprintf("%v is not between %v and %v", d, least, most)
}

func badRulesFiles(name string) string {
	if _, err := rules.ParseFiles(name); err != nil {
		return err.Error()
	}
	return ""
}

func badLyftAlgorithm(name string) string {
	if slices.Contains(LyftAlgorithms(), name) {
		return ""
	}
	return fmt.Sprintf("%q is not one of %s", name, strings.Join(LyftAlgorithms(), ", "))
}

func (o Options) badCountDenied() string {
	if a, ok := algorithms.Parse(o.LyftAlgorithm); !o.RLSCountDenied || !ok || !a.Drains() {
		return ""
	}
	return fmt.Sprintf("is not for lyft-algorithm %s, only for %s", o.LyftAlgorithm, strings.Join(lyftWindows(), ", "))
}

func badHeaders(names []string) string {
	if len(names) != 0 && len(names) != 3 {
		return fmt.Sprintf("has %d names, not 3: for the limit, what remains, and when it is reset", len(names))
	}
	for _, name := range names {
		if !httpguts.ValidHeaderFieldName(name) {
			return fmt.Sprintf("%q is not the name of a header", name)
		}
	}
	return ""
}

// rules is how the files of rules are read.
func (o Options) rules() rules.Options {
	algorithm, _ := algorithms.Parse(o.LyftAlgorithm)
	files, _ := rules.ParseFiles(o.RulesFiles)
	return rules.Options{Files: files, Envoy: envoyrules.Options{Algorithm: algorithm, Merge: o.MergeDomains}}
}

// envoy is how Envoy's API answers.
func (o Options) envoy() envoy.Config {
	return envoy.Config{
		CountDenied: o.RLSCountDenied, Shadow: o.RLSShadow, Quota: o.RLSQuota, Headers: o.RLSHeaders, Metadata: o.RLSMetadata,
		NearLimit: o.RLSNearLimit, Rules: o.rules().Envoy, NeedsRules: o.HealthNeedsRules,
	}
}
