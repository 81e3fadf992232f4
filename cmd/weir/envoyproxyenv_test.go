package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/node"
)

func TestLyftEnvironment(t *testing.T) {
	const use, xds = "RUNTIME_ROOT=/r", "CONFIG_TYPE=GRPC_XDS_SOTW"
	tls := []string{"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT=/tls.crt", "GRPC_SERVER_TLS_KEY=/tls.key"}
	for _, tc := range []struct {
		env          []string
		option, want string
	}{
		{[]string{use}, "rules", "/r/config"},
		{[]string{use, "RUNTIME_SUBDIRECTORY=s", "RUNTIME_APPDIRECTORY=a/b"}, "rules", "/r/s/a/b"},
		{[]string{"RUNTIME_SUBDIRECTORY=s"}, "rules", "/srv/runtime_data/current/s/config"},
		{[]string{"SHADOW_MODE=true"}, "rules", ""},
		{[]string{use, "PORT=1", "HOST=127.0.0.2"}, "http", "127.0.0.2:1"},
		{[]string{use}, "http", "0.0.0.0:8080"},
		{[]string{use, "PORT=1"}, "http", "0.0.0.0:1"},
		{[]string{"GRPC_PORT=2"}, "grpc", "0.0.0.0:2"},
		{[]string{use}, "grpc", "0.0.0.0:8081"},
		{[]string{"GRPC_HOST=127.0.0.3"}, "grpc", "127.0.0.3:8081"},
		{[]string{use, "LOG_LEVEL=WARNING"}, "log-level", "warn"},
		{[]string{use, "LOG_LEVEL=trace"}, "log-level", "debug"},
		{[]string{use, "LOG_LEVEL=fatal"}, "log-level", "error"},
		{[]string{use}, "rules-files", "runtime"},
		{[]string{use, "RUNTIME_IGNOREDOTFILES=true"}, "rules-files", "visible-runtime"},
		{[]string{use, "RUNTIME_WATCH_ROOT=false"}, "rules-files", "all"},
		{[]string{use, "RUNTIME_WATCH_ROOT=false", "RUNTIME_IGNOREDOTFILES=1"}, "rules-files", "visible"},
		{[]string{use, "WEIR_RULES=/x"}, "rules-files", "all"},
		{[]string{use, "WEIR_RULES_FILES=yaml"}, "rules-files", "yaml"},
		{[]string{"PORT=1"}, "rules-files", "yaml"},
		{[]string{use}, "rls-count-denied", "true"},
		{[]string{"SHADOW_MODE=false"}, "rls-count-denied", "true"},
		{[]string{use, "WEIR_RLS_COUNT_DENIED=false"}, "rls-count-denied", "false"},
		{[]string{use, "WEIR_LYFT_ALGORITHM=sliding_window"}, "rls-count-denied", "true"},
		{[]string{use, "WEIR_LYFT_ALGORITHM=gcra"}, "rls-count-denied", "false"},
		{[]string{"PORT=1"}, "rls-count-denied", "false"},
		{[]string{"SHADOW_MODE=1"}, "rls-shadow", "true"},
		{[]string{"SHADOW_MODE=false"}, "rls-shadow", "false"},
		{[]string{"QUOTA_MODE=true"}, "rls-quota", "true"},
		{[]string{"RESPONSE_DYNAMIC_METADATA=true"}, "rls-metadata", "true"},
		{[]string{"MERGE_DOMAIN_CONFIG=true"}, "merge-domains", "true"},
		{[]string{"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=true"}, "health-needs-rules", "true"},
		{[]string{"NEAR_LIMIT_RATIO=0.7"}, "rls-near-limit", "0.7"},
		{[]string{"LIMIT_RESPONSE_HEADERS_ENABLED=true"}, "rls-headers", "RateLimit-Limit,RateLimit-Remaining,RateLimit-Reset"},
		{[]string{"LIMIT_RESPONSE_HEADERS_ENABLED=true", "LIMIT_LIMIT_HEADER=L", "LIMIT_REMAINING_HEADER=M", "LIMIT_RESET_HEADER=R"}, "rls-headers", "L,M,R"},
		{[]string{"LIMIT_RESPONSE_HEADERS_ENABLED=false", "LIMIT_LIMIT_HEADER=L"}, "rls-headers", ""},
		{[]string{"CONFIG_TYPE=FILE", "GRPC_SERVER_USE_TLS=false"}, "grpc", "0.0.0.0:8081"},
		{[]string{use, "GRPC_SERVER_USE_TLS=0"}, "grpc", "0.0.0.0:8081"},
		{[]string{"REDIS_SOCKET_TYPE=tcp"}, "grpc", "0.0.0.0:8081"},
		// Limits by xDS.
		{[]string{xds, use}, "rules", ""},
		{[]string{xds}, "xds-server", "localhost:18000"},
		{[]string{xds, "WEIR_ETCD=e:1"}, "xds-server", "localhost:18000"},
		{[]string{xds, "CONFIG_GRPC_XDS_SERVER_URL=eg:18001"}, "xds-server", "eg:18001"},
		{[]string{xds, "CONFIG_GRPC_XDS_SERVER_URL=dns:///eg:18001"}, "xds-server", "eg:18001"},
		{[]string{xds, "CONFIG_GRPC_XDS_SERVER_URL=eg:18001", "CONFIG_GRPC_XDS_SERVER_USE_TLS=true"}, "xds-server", "https://eg:18001"},
		{[]string{xds, "CONFIG_GRPC_XDS_SERVER_URL=eg:18001", "WEIR_XDS_SERVER=other:1"}, "xds-server", "other:1"},
		{[]string{"CONFIG_TYPE=FILE", "CONFIG_GRPC_XDS_SERVER_URL=eg:18001"}, "xds-server", ""},
		{[]string{xds}, "xds-node-id", "default"},
		{[]string{xds, "CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit"}, "xds-node-id", "envoy-ratelimit"},
		{[]string{xds, "CONFIG_GRPC_XDS_NODE_METADATA=a=b,c=d"}, "xds-metadata", "a=b,c=d"},
		{[]string{xds, "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=a:b"}, "xds-headers", "a:b"},
		{[]string{xds, "CONFIG_GRPC_XDS_SERVER_USE_TLS=1", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT=/c", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY=/k"}, "xds-cert", "/c"},
		{[]string{xds, "CONFIG_GRPC_XDS_SERVER_USE_TLS=1", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT=/c", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY=/k"}, "xds-key", "/k"},
		{[]string{xds, "CONFIG_GRPC_XDS_SERVER_USE_TLS=1", "CONFIG_GRPC_XDS_SERVER_TLS_CACERT=/a"}, "xds-ca", "/a"},
		{[]string{xds, "CONFIG_GRPC_XDS_SERVER_USE_TLS=1", "CONFIG_GRPC_XDS_SERVER_TLS_SAN=eg"}, "xds-server-name", "eg"},
		{[]string{xds, "CONFIG_GRPC_XDS_SERVER_TLS_CACERT=/a"}, "xds-ca", ""}, // without TLS it means nothing there either
		{[]string{xds, "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=10s"}, "xds-retry", "10s"},
		{[]string{xds, "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=40s"}, "xds-retry-max", "40s"},
		{[]string{xds, "XDS_CLIENT_BACKOFF_MAX_INTERVAL=500ms"}, "xds-retry", "500ms"},
		{[]string{xds, "XDS_CLIENT_BACKOFF_MAX_INTERVAL=60s"}, "xds-retry-max", "1m0s"},
		{[]string{xds, "FORCE_START_WITHOUT_INITIAL_CONFIG=true"}, "xds-start-empty", "true"},
		{[]string{xds, "WEIR_RULES=/f.yaml", use}, "rules", "/f.yaml"},
		{[]string{xds, "WEIR_RULES=/f.yaml", use}, "xds-server", ""},
		// TLS of callers, by a certificate that is not the node's.
		{append([]string{"GRPC_PORT=2"}, tls...), "rls-listen", "0.0.0.0:2"},
		{tls, "rls-listen", "0.0.0.0:8081"},
		{tls, "grpc", "127.0.0.1:9090"},
		{tls, "rls-cert", "/tls.crt"},
		{tls, "rls-key", "/tls.key"},
		{append([]string{"GRPC_CLIENT_TLS_CACERT=/ca", "GRPC_CLIENT_TLS_SAN=envoy"}, tls...), "rls-ca", "/ca"},
		{append([]string{"GRPC_CLIENT_TLS_CACERT=/ca", "GRPC_CLIENT_TLS_SAN=envoy"}, tls...), "rls-client-name", "envoy"},
		{[]string{"GRPC_SERVER_USE_TLS=false", "GRPC_SERVER_TLS_CERT=/tls.crt"}, "rls-listen", ""},
		// What weir lacks, and is told otherwise.
		{[]string{"GRPC_UDS=/x.sock", "WEIR_GRPC=127.0.0.1:6"}, "grpc", "127.0.0.1:6"},
		// What others have variables for, too.
		{[]string{"PORT=1", "HOST=h", "LOG_LEVEL=nonsense", "REDIS_URL=x"}, "http", "127.0.0.1:8080"},
		{[]string{"RUNTIME_ROOT="}, "rules", ""},
		// The order of the places.
		{[]string{use, "PORT=1", "WEIR_HTTP=127.0.0.1:5"}, "http", "127.0.0.1:5"},
	} {
		opts, err := read(t, nil, append(tc.env, "WEIR_INSECURE=true", "WEIR_ADVERTISE=h:1"), "")
		if err != nil {
			t.Errorf("%q: %v", tc.env, err)
			continue
		}
		if got := field(t, opts, tc.option); got != tc.want {
			t.Errorf("%q: %s is %s, want %s", tc.env, tc.option, got, tc.want)
		}
	}
	opts, err := read(t, []string{"--grpc=127.0.0.1:7"}, []string{use, "GRPC_PORT=1", "WEIR_INSECURE=true"}, "http: 127.0.0.1:6\nrls-shadow: true\n")
	if err != nil || opts.GRPC != "127.0.0.1:7" || opts.HTTP != "0.0.0.0:8080" || !opts.RLSShadow {
		t.Errorf("%+v, %v", opts, err)
	}
}

func TestLyftEnvironmentRefuses(t *testing.T) {
	const xds = "CONFIG_TYPE=GRPC_XDS_SOTW"
	tls := func(value string) string {
		return `GRPC_SERVER_USE_TLS: "` + value + `" needs GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY, or --tls-cert, --tls-key and --tls-ca: callers that expect TLS could not connect; see weir certs`
	}
	for env, want := range map[string]string{
		xds + " CONFIG_GRPC_XDS_SERVER_URL=eg":                                       `CONFIG_GRPC_XDS_SERVER_URL: "eg" is not host:port, such as 127.0.0.1:9090`,
		xds + " CONFIG_GRPC_XDS_SERVER_USE_TLS=maybe":                                `CONFIG_GRPC_XDS_SERVER_USE_TLS: "maybe" is not true or false`,
		xds + " XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=soon":                            `XDS_CLIENT_BACKOFF_INITIAL_INTERVAL: "soon" is not a duration, such as 25ms or 1s`,
		xds + " CONFIG_GRPC_XDS_NODE_METADATA=a":                                     `CONFIG_GRPC_XDS_NODE_METADATA: "a" is not a new name, "=" and a value`,
		xds + " FORCE_START_WITHOUT_INITIAL_CONFIG=maybe":                            `FORCE_START_WITHOUT_INITIAL_CONFIG: "maybe" is not true or false`,
		xds + " CONFIG_GRPC_XDS_SERVER_USE_TLS=1 CONFIG_GRPC_XDS_CLIENT_TLS_CERT=/c": "CONFIG_GRPC_XDS_CLIENT_TLS_CERT: --xds-cert needs --xds-key as well",
		"GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT=/c":                           tls("true"),
		"CONFIG_TYPE=GRPC_XDS_SYNC":                                                  `CONFIG_TYPE: "GRPC_XDS_SYNC" is not one of FILE, GRPC_XDS_SOTW`,
		"GRPC_SERVER_USE_TLS=true":                                                   tls("true"),
		"GRPC_SERVER_USE_TLS=1":                                                      tls("1"), // all that strconv.ParseBool takes is true there
		"GRPC_SERVER_USE_TLS=T WEIR_GRPC=h:1":                                        tls("T"),
		"GRPC_SERVER_USE_TLS=yes":                                                    `GRPC_SERVER_USE_TLS: "yes" is not true or false`,
		"GRPC_UDS=/tmp/x.sock":                                                       `GRPC_UDS: weir does not listen on a socket file such as "/tmp/x.sock"; give an address with --grpc, or unset it and set GRPC_PORT`,
		"RUNTIME_WATCH_ROOT=maybe":                                                   `RUNTIME_WATCH_ROOT: "maybe" is not true or false`,
		"RUNTIME_IGNOREDOTFILES=2":                                                   `RUNTIME_IGNOREDOTFILES: "2" is not true or false`,
		"SHADOW_MODE=maybe":                                                          `SHADOW_MODE: "maybe" is not true or false`,
		"LIMIT_RESPONSE_HEADERS_ENABLED=1.5":                                         `LIMIT_RESPONSE_HEADERS_ENABLED: "1.5" is not true or false`,
		"NEAR_LIMIT_RATIO=2":                                                         `NEAR_LIMIT_RATIO: 2 is not above 0 and up to 1`,
		"NEAR_LIMIT_RATIO=x":                                                         `NEAR_LIMIT_RATIO: "x" is not a share, such as 0.8`,
		"GRPC_PORT=99999":                                                            `GRPC_PORT: "0.0.0.0:99999" has the port "99999", allowed is 0 to 65535`,
		"RUNTIME_ROOT=/r LOG_LEVEL=loud":                                             `LOG_LEVEL: "loud" is not one of debug, error, fatal, info, panic, trace, warn, warning`,
		"RUNTIME_ROOT=/r WEIR_INSECURE=false": "GRPC_PORT: 0.0.0.0:8081 is reachable from other machines and there is no TLS; pass --tls-cert, --tls-key and --tls-ca, listen on 127.0.0.1:8081, or pass --insecure if the network is trusted\n" +
			"PORT: 0.0.0.0:8080 is reachable from other machines and there is no TLS; pass --tls-cert, --tls-key and --tls-ca, listen on 127.0.0.1:8080, or pass --insecure if the network is trusted",
	} {
		_, err := read(t, nil, append([]string{"WEIR_INSECURE=true", "WEIR_ADVERTISE=h:1"}, strings.Fields(env)...), "")
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v\nwant %s", env, err, want)
		}
	}
}

func TestLyftWarnings(t *testing.T) {
	env := newApp([]string{
		"RUNTIME_ROOT=/r", "REDIS_URL=x", "REDIS_SOCKET_TYPE=tcp", "BACKEND_TYPE=redis", "USE_STATSD=false", "DEBUG_PORT=6070", "TRACING_ENABLED=false", "PORT=1", "MEMCACHE_TLS=",
	}, nil, nil).env
	const want = `[{[BACKEND_TYPE REDIS_SOCKET_TYPE REDIS_URL] counters live in the nodes} {[USE_STATSD] metrics are at /metrics of the HTTP port} ` +
		`{[DEBUG_PORT] /rlconfig is on the HTTP port, and --pprof serves profiles} {[TRACING_ENABLED] --trace-endpoint sends traces}]`
	if got := fmt.Sprint(lyftWarnings(env, node.Options{})); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	overruled := map[string]string{"CONFIG_TYPE": "GRPC_XDS_SOTW", "GRPC_UDS": "/x"}
	if got := fmt.Sprint(lyftWarnings(overruled, node.Options{})); got != `[{[CONFIG_TYPE] rules are not read by xDS, but from --rules} {[GRPC_UDS] weir listens at --grpc, and on no socket file}]` {
		t.Errorf("overruled: %s", got)
	}
	tls := map[string]string{"GRPC_SERVER_USE_TLS": "true", "GRPC_SERVER_TLS_CERT": "/c", "GRPC_SERVER_TLS_CA_CERT": "/a"}
	if got := fmt.Sprint(lyftWarnings(tls, node.Options{RLSListen: "h:1"})); got != `[{[GRPC_SERVER_TLS_CA_CERT] callers are verified by the CA in GRPC_CLIENT_TLS_CACERT}]` {
		t.Errorf("a certificate for callers: %s", got)
	}
	if got := fmt.Sprint(lyftWarnings(tls, node.Options{})); got != `[{[GRPC_SERVER_TLS_CA_CERT GRPC_SERVER_TLS_CERT] TLS is set by --tls-cert, --tls-key, --tls-ca and --tls-client-auth}]` {
		t.Errorf("a certificate of the node: %s", got)
	}
	byXDS := map[string]string{"CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_NODE_ID": "x", "XDS_CLIENT_BACKOFF_JITTER": "true", "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES": "1"}
	if got := fmt.Sprint(lyftWarnings(byXDS, node.Options{XDSServer: "h:1"})); got != `[{[XDS_CLIENT_BACKOFF_JITTER] a random half of each wait for the xDS server is left out} {[XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES] messages of the xDS server may have 16 MiB}]` {
		t.Errorf("xDS: %s", got)
	}
	delete(env, "RUNTIME_ROOT")
	delete(env, "REDIS_SOCKET_TYPE")
	if got := lyftWarnings(env, node.Options{}); got != nil {
		t.Errorf("without its own variables: %v", got)
	}
}

// The page about envoyproxy/ratelimit names every variable and option.
func TestEnvoyproxyPageIsComplete(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/envoyproxy-ratelimit.md")
	if err != nil {
		t.Fatal(err)
	}
	names := append([]string{"HOST", "PORT", "LOG_LEVEL"}, lyftOwn...)
	for _, group := range slices.Concat(lyftIgnored, lyftWithXDS, []group{lyftWithoutXDS, lyftWithRLS, lyftWithoutRLS}) {
		names = append(names, group.names...)
	}
	for _, options := range []map[string]string{lyftSource, lyftSourceTLS, lyftRLS} {
		names = slices.AppendSeq(names, maps.Keys(options))
	}
	for _, option := range lyftBooleans {
		names = append(names, "--"+option)
	}
	for _, name := range names {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("the page does not mention %s", name)
		}
	}
}
