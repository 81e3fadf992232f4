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
		{"id", "NAME", "", "this node's name in the cluster; a node restarted under its name takes its old place (default the host's name and the gRPC port)",
			text(func(o *node.Options) *string { return &o.ID })},
		{"grpc", "HOST:PORT", d.GRPC, "listen here for gRPC, from clients and other nodes; port 0 picks a free one",
			text(func(o *node.Options) *string { return &o.GRPC })},
		{"http", "HOST:PORT", d.HTTP, "listen here for HTTP; port 0 picks a free one",
			text(func(o *node.Options) *string { return &o.HTTP })},
		{"advertise", "HOST:PORT", "", "where other nodes reach this node's gRPC (default the address in --grpc)",
			text(func(o *node.Options) *string { return &o.Advertise })},
		{"cluster", "NAME", d.Cluster, "nodes of one etcd and one cluster share their limits",
			text(func(o *node.Options) *string { return &o.Cluster })},
		{"etcd", "HOST:PORT,...", "", "endpoints of an etcd cluster (default none: run an etcd in this process)",
			list(func(o *node.Options) *[]string { return &o.Etcd })},
		{"etcd-listen", "HOST:PORT", d.EtcdListen, "listen here with the etcd in this process, so that more nodes can join with --etcd; port 0 picks a free one",
			text(func(o *node.Options) *string { return &o.EtcdListen })},
		{"data-dir", "DIR", "", "what must survive a restart: the data of the etcd in this process, and what a node needs to start while etcd is away (default weir/ID under $XDG_STATE_HOME or ~/.local/state)",
			text(func(o *node.Options) *string { return &o.DataDir })},
		{"rules", "FILE-or-DIR", "", "the rules file, or a directory of them (default none: the cluster's rules, see weir rules)",
			text(func(o *node.Options) *string { return &o.Rules })},
		{"insecure", "bool", "", "permit to listen beyond loopback without TLS",
			boolean(func(o *node.Options) *bool { return &o.Insecure })},
		{"pprof", "HOST:PORT", "", "serve Go's profiles of this process here, on loopback only; port 0 picks a free one (default none)",
			text(func(o *node.Options) *string { return &o.Pprof })},
		{"http-headers", "FORM,...", strings.Join(d.HTTPHeaders, ","), "header fields that tell HTTP clients of limits: draft (RateLimit and RateLimit-Policy of the IETF's draft 11), or its older draft-7 or draft-6, and x-ratelimit; or none",
			list(func(o *node.Options) *[]string { return &o.HTTPHeaders })},
		{"reset-format", "FORM", d.ResetFormat, "X-RateLimit-Reset is a delta, in seconds from now, or epoch, in Unix seconds",
			text(func(o *node.Options) *string { return &o.ResetFormat })},
		{"retry-jitter", "PERCENT", d.RetryJitter, "how much longer than they must denied clients are told at most to wait, so that not all come back at once; 0% to 100%",
			text(func(o *node.Options) *string { return &o.RetryJitter })},
		{"trusted-proxies", "CIDR,...", strings.Join(d.TrustedProxies, ","), "proxies whose word on the client's address is taken by /auth; or none",
			list(func(o *node.Options) *[]string { return &o.TrustedProxies })},
		{"client-ip-header", "HEADER", d.ClientIPHeader, "where they say it: X-Forwarded-For, Forwarded or X-Real-Ip",
			text(func(o *node.Options) *string { return &o.ClientIPHeader })},
		{"auth-attribute", "ATTRIBUTE=HEADER,...", "", "header fields that /auth makes attributes, such as user=X-User, beside ip, endpoint and method; the proxy must not let clients choose them (default none)",
			list(func(o *node.Options) *[]string { return &o.AuthAttribute })},
		{"auth-max-delay", "DURATION", d.AuthMaxDelay.String(), "how long /auth may hold a request until its turn comes, where rules book turns (leaky_bucket, max_delay), up to 5s; who would wait for longer is denied",
			duration(func(o *node.Options) *time.Duration { return &o.AuthMaxDelay })},
		{"log-level", "LEVEL", d.LogLevel, "least level to log: debug, info, warn or error",
			text(func(o *node.Options) *string { return &o.LogLevel })},
		{"counter-memory", "SIZE", d.CounterMemory.String(), "most memory for the counters of this node, of about 43 bytes each, 8MiB to 4TiB; those of logs and buckets come on top, at most 256MiB",
			above0(size, func(o *node.Options) *node.Bytes { return &o.CounterMemory })},
		{"peer-timeout", "DURATION", d.PeerTimeout.String(), "most to wait for the node that owns a counter, 1ms to 10s, before the one that stands by for it is asked; if nobody answers, the rule's on_failure decides",
			above0(duration, func(o *node.Options) *time.Duration { return &o.PeerTimeout })},
		{"forget-denials", "bool", "", "ask the node that owns a counter again although it has denied just now, instead of remembering that for up to 20ms",
			boolean(func(o *node.Options) *bool { return &o.ForgetDenials })},
		{"lend-nothing", "bool", "", "lend no tokens of counters that are asked for often, neither to other nodes nor to clients, and borrow none",
			boolean(func(o *node.Options) *bool { return &o.LendNothing })},
		{"lyft-algorithm", "NAME", d.LyftAlgorithm, "what limits of envoyproxy/ratelimit's files count by: fixed_window, sliding_window, sliding_window_buckets, token_bucket or gcra; the same on all nodes",
			text(func(o *node.Options) *string { return &o.LyftAlgorithm })},
		{"merge-domains", "bool", "", "permit several files of envoyproxy/ratelimit for one domain",
			boolean(func(o *node.Options) *bool { return &o.MergeDomains })},
		{"rls-count-denied", "bool", "", "in Envoy's API, count each descriptor by itself and also when it is over its limit, as envoyproxy/ratelimit does",
			boolean(func(o *node.Options) *bool { return &o.RLSCountDenied })},
		{"rls-shadow", "bool", "", "in Envoy's API, deny nothing, and only tell what would be",
			boolean(func(o *node.Options) *bool { return &o.RLSShadow })},
		{"rls-quota", "bool", "", "in Envoy's API, treat all descriptors as if they had quota_mode",
			boolean(func(o *node.Options) *bool { return &o.RLSQuota })},
		{"rls-headers", "NAME,...", "", "in Envoy's API, add three headers of these names to responses: the limit, what remains, and the seconds until it is reset; and Retry-After if denied (default none)",
			list(func(o *node.Options) *[]string { return &o.RLSHeaders })},
		{"rls-metadata", "bool", "", "in Envoy's API, answer with dynamic metadata",
			boolean(func(o *node.Options) *bool { return &o.RLSMetadata })},
		{"rls-near-limit", "SHARE", fmt.Sprint(d.RLSNearLimit), "share of a descriptor's limit from which on metrics count hits as near it",
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

// above0 is for a field whose zero value stands for its default, which nobody means who
// writes 0.
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
// pass on what they do not know.
func readOptions(flags *pflag.FlagSet, env map[string]string) (node.Options, error) {
	config := given{flags.Lookup("config").Value.String(), "--config"}
	if !flags.Changed("config") {
		config = given{env[variable("config")], variable("config")}
	}
	file, err := readFile(config)
	if err != nil {
		return node.Options{}, err
	}

	lyft, err := lyftOptions(env, func(option string) bool {
		return file[option].text != "" || env[variable(option)] != "" || flags.Changed(option)
	})
	if err != nil {
		return node.Options{}, err
	}

	var opts node.Options
	where := make(map[string]string)
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
			where[option.name] = "--" + option.name // where to mend a default
			continue
		}
		where[option.name] = value.where
		if err := option.set(&opts, value.text); err != nil {
			return node.Options{}, fmt.Errorf("%s: %w", value.where, err)
		}
	}
	if err := opts.Validate(); err != nil {
		var bad *node.OptionError
		if errors.As(err, &bad) && where[bad.Name] != "" {
			err = fmt.Errorf("%s: %s", where[bad.Name], bad.Problem)
		}
		return node.Options{}, err
	}
	return opts.WithDefaults(), nil
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
	known := []string{variable("config"), variable("node")}
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
