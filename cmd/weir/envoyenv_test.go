package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestLyftEnvironment(t *testing.T) {
	const use = "RUNTIME_ROOT=/r"
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
		// What weir lacks, and is told otherwise.
		{[]string{"CONFIG_TYPE=GRPC_XDS_SOTW", "WEIR_RULES=/f.yaml", use}, "rules", "/f.yaml"},
		{[]string{"CONFIG_TYPE=GRPC_XDS_SOTW", "WEIR_ETCD=e:1", use}, "rules", ""},
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
	const xds = `CONFIG_TYPE: weir does not read limits by xDS (GRPC_XDS_SOTW); give files with --rules, or an etcd with --etcd, see weir rules apply`
	tls := func(value string) string {
		return `GRPC_SERVER_USE_TLS: "` + value + `" needs --tls-cert, --tls-key and --tls-ca: callers that expect TLS could not connect; see weir certs`
	}
	for env, want := range map[string]string{
		"CONFIG_TYPE=GRPC_XDS_SOTW":                 xds,
		"CONFIG_TYPE=GRPC_XDS_SOTW RUNTIME_ROOT=/r": xds,
		"CONFIG_TYPE=GRPC_XDS_SYNC":                 `CONFIG_TYPE: "GRPC_XDS_SYNC" is not one of FILE, GRPC_XDS_SOTW`,
		"GRPC_SERVER_USE_TLS=true":                  tls("true"),
		"GRPC_SERVER_USE_TLS=1":                     tls("1"), // all that strconv.ParseBool takes is true there
		"GRPC_SERVER_USE_TLS=T WEIR_GRPC=h:1":       tls("T"),
		"GRPC_SERVER_USE_TLS=yes":                   `GRPC_SERVER_USE_TLS: "yes" is not true or false`,
		"GRPC_UDS=/tmp/x.sock":                      `GRPC_UDS: weir does not listen on a socket file such as "/tmp/x.sock"; give an address with --grpc, or unset it and set GRPC_PORT`,
		"RUNTIME_WATCH_ROOT=maybe":                  `RUNTIME_WATCH_ROOT: "maybe" is not true or false`,
		"RUNTIME_IGNOREDOTFILES=2":                  `RUNTIME_IGNOREDOTFILES: "2" is not true or false`,
		"SHADOW_MODE=maybe":                         `SHADOW_MODE: "maybe" is not true or false`,
		"LIMIT_RESPONSE_HEADERS_ENABLED=1.5":        `LIMIT_RESPONSE_HEADERS_ENABLED: "1.5" is not true or false`,
		"NEAR_LIMIT_RATIO=2":                        `NEAR_LIMIT_RATIO: 2 is not above 0 and up to 1`,
		"NEAR_LIMIT_RATIO=x":                        `NEAR_LIMIT_RATIO: "x" is not a share, such as 0.8`,
		"GRPC_PORT=99999":                           `GRPC_PORT: "0.0.0.0:99999" has the port "99999", allowed is 0 to 65535`,
		"RUNTIME_ROOT=/r LOG_LEVEL=loud":            `LOG_LEVEL: "loud" is not one of debug, error, fatal, info, panic, trace, warn, warning`,
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
		`{[DEBUG_PORT] /rlconfig is on the HTTP port, and --pprof serves profiles} {[TRACING_ENABLED] there are no traces}]`
	if got := fmt.Sprint(lyftWarnings(env)); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	overruled := map[string]string{"CONFIG_TYPE": "GRPC_XDS_SOTW", "GRPC_UDS": "/x"}
	if got := fmt.Sprint(lyftWarnings(overruled)); got != `[{[CONFIG_TYPE] rules are not read by xDS, but from --rules or etcd} {[GRPC_UDS] weir listens at --grpc, and on no socket file}]` {
		t.Errorf("overruled: %s", got)
	}
	delete(env, "RUNTIME_ROOT")
	delete(env, "REDIS_SOCKET_TYPE")
	if got := lyftWarnings(env); got != nil {
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
	for _, group := range lyftIgnored {
		names = append(names, group.names...)
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
