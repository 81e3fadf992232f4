package main

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/node"
	"github.com/weirlimit/weir/rules"
)

// This file understands the environment variables of envoyproxy/ratelimit, so that weir can be started in
// its place with the same environment (src/settings/settings.go, July 2026).

// lyftOwn are the variables that only envoyproxy/ratelimit has. One of them says that
// the others, with names as common as PORT, are meant for it, too.
var lyftOwn = []string{
	"RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY", "RUNTIME_IGNOREDOTFILES", "RUNTIME_WATCH_ROOT",
	"MERGE_DOMAIN_CONFIG", "SHADOW_MODE", "QUOTA_MODE", "RESPONSE_DYNAMIC_METADATA", "NEAR_LIMIT_RATIO",
	"LIMIT_RESPONSE_HEADERS_ENABLED", "LIMIT_LIMIT_HEADER", "LIMIT_REMAINING_HEADER", "LIMIT_RESET_HEADER",
	"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "FORCE_START_WITHOUT_INITIAL_CONFIG", "CONFIG_TYPE",
	"GRPC_HOST", "GRPC_PORT", "GRPC_UDS", "GRPC_SERVER_USE_TLS", "REDIS_SOCKET_TYPE",
	"EXPIRATION_JITTER_MAX_SECONDS", "LOCAL_CACHE_SIZE_IN_BYTES", "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "CACHE_KEY_PREFIX",
}

// lyftBooleans are the options that are variables with the same meaning.
var lyftBooleans = map[string]string{
	"SHADOW_MODE": "rls-shadow", "QUOTA_MODE": "rls-quota", "RESPONSE_DYNAMIC_METADATA": "rls-metadata",
	"MERGE_DOMAIN_CONFIG": "merge-domains", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED": "health-needs-rules",
}

// group are variables that mean nothing for one reason.
type group struct {
	because string
	names   []string
}

// lyftIgnored are the variables without a meaning here, and why. A star stands for any
// end.
var lyftIgnored = []group{
	{"counters live in the nodes", []string{
		"REDIS_*", "MEMCACHE_*", "BACKEND_TYPE", "CACHE_KEY_PREFIX", "LOCAL_CACHE_SIZE_IN_BYTES", "EXPIRATION_JITTER_MAX_SECONDS",
	}},
	{"a denied request counts in all its descriptors, and in none with rls-count-denied=false", []string{"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT"}},
	{"metrics are at /metrics of the HTTP port", []string{
		"USE_STATSD", "STATSD_HOST", "STATSD_PORT", "STATS_FLUSH_INTERVAL", "EXTRA_TAGS", "DISABLE_STATS",
		"USE_DOG_STATSD", "USE_DOG_STATSD_MOGRIFIERS", "USE_PROMETHEUS", "PROMETHEUS_*",
	}},
	{"/rlconfig is on the HTTP port, and --pprof serves profiles", []string{"DEBUG_HOST", "DEBUG_PORT"}},
	{"logs are JSON, and text on a terminal", []string{"LOG_FORMAT"}},
	{"connections do not end by age", []string{"GRPC_MAX_CONNECTION_AGE", "GRPC_MAX_CONNECTION_AGE_GRACE"}},
	{"--trace-endpoint sends traces", []string{"TRACING_*"}},
}

// These mean something only where the option does that they are for.
var (
	lyftWithoutXDS = group{"rules are not read by xDS", []string{"CONFIG_GRPC_XDS_*", "XDS_CLIENT_*", "FORCE_START_WITHOUT_INITIAL_CONFIG"}}
	lyftWithXDS    = []group{
		{"a random half of each wait for the xDS server is left out", []string{
			"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "XDS_CLIENT_BACKOFF_JITTER",
		}},
		{fmt.Sprintf("messages of the xDS server may have %d MiB", node.MaxXDSMessage>>20), []string{"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES"}},
	}
	lyftWithoutRLS = group{"TLS is set by --tls-cert, --tls-key, --tls-ca and --tls-client-auth", []string{"GRPC_SERVER_TLS_*", "GRPC_CLIENT_TLS_*"}}
	lyftWithRLS    = group{"callers are verified by the CA in GRPC_CLIENT_TLS_CACERT", []string{"GRPC_SERVER_TLS_CA_CERT"}}
)

// lyftLevels are the levels of its log by those of weir's.
var lyftLevels = map[string]string{
	"panic": "error", "fatal": "error", "error": "error", "warn": "warn", "warning": "warn", "info": "info", "debug": "debug", "trace": "debug",
}

// lyftInUse says whether the environment is one of envoyproxy/ratelimit.
func lyftInUse(env map[string]string) bool {
	return slices.ContainsFunc(lyftOwn, func(name string) bool { return env[name] != "" })
}

// lyftOptions returns the options that the environment of envoyproxy/ratelimit gives. It
// refuses what it asks for and weir does not have, where limits, callers or secrecy would be
// lost without a word; said returns the text of an option that is given elsewhere as well, which
// settles what it is about.
func lyftOptions(env map[string]string, said func(option string) string) (map[string]given, error) {
	options := make(map[string]given)
	if !lyftInUse(env) {
		return options, nil
	}
	if err := lyftRefuses(env, said); err != nil {
		return nil, err
	}
	if algorithm, _ := algorithms.Parse(said("lyft-algorithm")); !algorithm.Drains() {
		options["rls-count-denied"] = given{"true", "rls-count-denied of envoyproxy/ratelimit"}
	}
	address := func(option, host, port, otherwise string) {
		options[option] = given{net.JoinHostPort(cmp.Or(env[host], "0.0.0.0"), cmp.Or(env[port], otherwise)), port}
	}
	address("http", "HOST", "PORT", "8080")
	if lyftTLS(env, said) {
		address("rls-listen", "GRPC_HOST", "GRPC_PORT", "8081")
		pass(env, options, lyftRLS)
	} else {
		address("grpc", "GRPC_HOST", "GRPC_PORT", "8081")
	}
	if env["CONFIG_TYPE"] == lyftXDS && said("rules") == "" {
		if err := lyftServer(env, options); err != nil {
			return nil, err
		}
	}
	// Where limits come by xDS there, these mean nothing.
	if env["CONFIG_TYPE"] != lyftXDS && (env["RUNTIME_ROOT"] != "" || env["RUNTIME_SUBDIRECTORY"] != "" || env["RUNTIME_APPDIRECTORY"] != "") {
		options["rules"] = given{filepath.Join(cmp.Or(env["RUNTIME_ROOT"], "/srv/runtime_data/current"),
			env["RUNTIME_SUBDIRECTORY"], cmp.Or(env["RUNTIME_APPDIRECTORY"], "config")), "RUNTIME_ROOT"}
	}
	pass(env, options, lyftBooleans)
	pass(env, options, map[string]string{"NEAR_LIMIT_RATIO": "rls-near-limit"})
	if v := env["LOG_LEVEL"]; v != "" {
		level, known := lyftLevels[strings.ToLower(v)]
		if !known {
			return nil, fmt.Errorf("LOG_LEVEL: %q is not one of %s", v, strings.Join(slices.Sorted(maps.Keys(lyftLevels)), ", "))
		}
		options["log-level"] = given{level, "LOG_LEVEL"}
	}
	if err := lyftFiles(env, options, said("rules") != ""); err != nil {
		return nil, err
	}
	return options, lyftHeaders(env, options)
}

// pass sets options to what variables have.
func pass(env map[string]string, options map[string]given, names map[string]string) {
	for name, option := range names {
		if v := env[name]; v != "" {
			options[option] = given{v, name}
		}
	}
}

// lyftRLS are the options that are the variables of callers with TLS.
var lyftRLS = map[string]string{
	"GRPC_SERVER_TLS_CERT": "rls-cert", "GRPC_SERVER_TLS_KEY": "rls-key", "GRPC_CLIENT_TLS_CACERT": "rls-ca", "GRPC_CLIENT_TLS_SAN": "rls-client-name",
}

// lyftTLS reports whether callers are to be served by the certificate in the variables. The variable was read before.
func lyftTLS(env map[string]string, said func(option string) string) bool {
	tls, _ := lyftSwitch(env, "GRPC_SERVER_USE_TLS", false)
	return tls && said("tls-cert") == ""
}

// lyftSource are the options that are variables of the xDS server, and lyftSourceTLS those that mean something with
// CONFIG_GRPC_XDS_SERVER_USE_TLS only.
var (
	lyftSource = map[string]string{
		"CONFIG_GRPC_XDS_NODE_ID": "xds-node-id", "CONFIG_GRPC_XDS_NODE_METADATA": "xds-metadata", "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS": "xds-headers",
		"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL": "xds-retry", "XDS_CLIENT_BACKOFF_MAX_INTERVAL": "xds-retry-max",
		"FORCE_START_WITHOUT_INITIAL_CONFIG": "xds-start-empty",
	}
	lyftSourceTLS = map[string]string{
		"CONFIG_GRPC_XDS_CLIENT_TLS_CERT": "xds-cert", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY": "xds-key",
		"CONFIG_GRPC_XDS_SERVER_TLS_CACERT": "xds-ca", "CONFIG_GRPC_XDS_SERVER_TLS_SAN": "xds-server-name",
	}
)

// lyftServer sets where limits come from by xDS.
func lyftServer(env map[string]string, options map[string]given) error {
	const url, useTLS = "CONFIG_GRPC_XDS_SERVER_URL", "CONFIG_GRPC_XDS_SERVER_USE_TLS"
	tls, err := lyftSwitch(env, useTLS, false)
	if err != nil {
		return err
	}
	server := strings.TrimPrefix(cmp.Or(env[url], "localhost:18000"), "dns:///")
	pass(env, options, lyftSource)
	if tls {
		server = "https://" + server
		pass(env, options, lyftSourceTLS)
	}
	options["xds-server"] = given{server, url}
	return nil
}

// lyftFiles sets which files are read. Those next to RUNTIME_APPDIRECTORY are read only if the rules are
// there.
func lyftFiles(env map[string]string, options map[string]given, elsewhere bool) error {
	ignore, err := lyftSwitch(env, "RUNTIME_IGNOREDOTFILES", false)
	if err != nil {
		return err
	}
	root, err := lyftSwitch(env, "RUNTIME_WATCH_ROOT", true)
	if err != nil {
		return err
	}
	which := rules.AllFiles
	switch root = root && !elsewhere; {
	case root && ignore:
		which = rules.VisibleRuntimeFiles
	case root:
		which = rules.RuntimeFiles
	case ignore:
		which = rules.VisibleFiles
	}
	options["rules-files"] = given{which.String(), "RUNTIME_IGNOREDOTFILES"}
	return nil
}

// lyftSwitch returns a variable that is true or false.
func lyftSwitch(env map[string]string, name string, unset bool) (bool, error) {
	text := env[name]
	if text == "" {
		return unset, nil
	}
	value, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("%s: %q is not true or false", name, text)
	}
	return value, nil
}

// lyftXDS is the CONFIG_TYPE that is not FILE.
const lyftXDS = "GRPC_XDS_SOTW"

// lyftRefuses returns an error for what weir lacks and must not pass over.
func lyftRefuses(env map[string]string, said func(option string) string) error {
	switch v := env["CONFIG_TYPE"]; {
	case v == "" || v == "FILE":
	case v != lyftXDS:
		return fmt.Errorf("CONFIG_TYPE: %q is not one of FILE, %s", v, lyftXDS)
	}
	if v := env["GRPC_UDS"]; v != "" && said("grpc") == "" {
		return fmt.Errorf("GRPC_UDS: weir does not listen on a socket file such as %q; give an address with --grpc, or unset it and set GRPC_PORT", v)
	}
	tls, err := lyftSwitch(env, "GRPC_SERVER_USE_TLS", false)
	if err == nil && tls && said("tls-cert") == "" && (env["GRPC_SERVER_TLS_CERT"] == "" || env["GRPC_SERVER_TLS_KEY"] == "") {
		err = fmt.Errorf("GRPC_SERVER_USE_TLS: %q needs GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY, or --tls-cert, --tls-key and --tls-ca: callers that expect TLS could not connect; see weir certs", env["GRPC_SERVER_USE_TLS"])
	}
	return err
}

func lyftHeaders(env map[string]string, options map[string]given) error {
	const name = "LIMIT_RESPONSE_HEADERS_ENABLED"
	enabled, err := lyftSwitch(env, name, false)
	if err != nil {
		return err
	}
	if enabled {
		options["rls-headers"] = given{strings.Join([]string{
			cmp.Or(env["LIMIT_LIMIT_HEADER"], "RateLimit-Limit"),
			cmp.Or(env["LIMIT_REMAINING_HEADER"], "RateLimit-Remaining"),
			cmp.Or(env["LIMIT_RESET_HEADER"], "RateLimit-Reset"),
		}, ","), name}
	}
	return nil
}

// ignored are variables without a meaning, and why they have none.
type ignored struct {
	names   []string
	because string
}

// lyftWarnings returns the variables of envoyproxy/ratelimit that are set and have no
// meaning for a node with these options. lyftOptions has refused nothing.
func lyftWarnings(env map[string]string, opts node.Options) []ignored {
	if !lyftInUse(env) {
		return nil
	}
	var warnings []ignored
	groups := slices.Clone(lyftIgnored)
	if opts.XDSServer == "" {
		groups = append(groups, lyftWithoutXDS)
		if env["CONFIG_TYPE"] == lyftXDS {
			warnings = append(warnings, ignored{[]string{"CONFIG_TYPE"}, "rules are not read by xDS, but from --rules"})
		}
	} else {
		groups = append(groups, lyftWithXDS...)
	}
	if opts.RLSListen == "" {
		groups = append(groups, lyftWithoutRLS)
	} else {
		groups = append(groups, lyftWithRLS)
	}
	if env["GRPC_UDS"] != "" {
		warnings = append(warnings, ignored{[]string{"GRPC_UDS"}, "weir listens at --grpc, and on no socket file"})
	}
	for _, group := range groups {
		var names []string
		for _, name := range slices.Sorted(maps.Keys(env)) {
			if env[name] != "" && slices.ContainsFunc(group.names, func(pattern string) bool { return fits(name, pattern) }) {
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			warnings = append(warnings, ignored{names, group.because})
		}
	}
	return warnings
}

// fits says whether a name is a pattern, or begins with one that ends in a star.
func fits(name, pattern string) bool {
	prefix, wild := strings.CutSuffix(pattern, "*")
	return name == pattern || wild && strings.HasPrefix(name, prefix)
}
