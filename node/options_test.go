package node

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"net/netip"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/api"
	"github.com/weirlimit/weir/internal/headers"
)

func TestOptionsValidate(t *testing.T) {
	const notLoopback = " is reachable from other machines and there is no TLS; " +
		"pass --tls-cert, --tls-key and --tls-ca, listen on 127.0.0.1:%s, or pass --insecure if the network is trusted"
	tests := []struct {
		options Options
		want    string // empty if valid
	}{
		{Options{}, ""},
		{Options{ID: "node-1.a_B"}, ""},
		{Options{ID: strings.Repeat("x", 128)}, ""},
		{Options{ID: strings.Repeat("x", 129)}, `id: "xxxxxxxxxxxxxxxx"... has 129 bytes, at most 128 are allowed`},
		{Options{ID: "a b"}, `id: "a b" has more than letters, digits, '.', '_' and '-'`},
		{Options{ID: "a/b"}, `id: "a/b" has more than letters, digits, '.', '_' and '-'`},
		{Options{ID: "ä"}, `id: "ä" has more than letters, digits, '.', '_' and '-'`},
		{Options{ID: ".."}, `id: ".." is not a name`},
		{Options{ID: "."}, `id: "." is not a name`},
		{Options{ID: "azAZ09"}, ""},

		{Options{GRPC: "[::1]:0"}, ""},
		{Options{GRPC: "[::ffff:127.0.0.1]:9090"}, ""},
		{Options{GRPC: "LocalHost:9090"}, ""},
		{Options{GRPC: "9090"}, `grpc: "9090" is not host:port, such as 127.0.0.1:9090`},
		{Options{GRPC: "::1:9090"}, `grpc: "::1:9090" is not host:port, such as 127.0.0.1:9090`},
		{Options{GRPC: "127.0.0.1:http"}, `grpc: "127.0.0.1:http" has the port "http", allowed is 0 to 65535`},
		{Options{GRPC: "127.0.0.1:65536"}, `grpc: "127.0.0.1:65536" has the port "65536", allowed is 0 to 65535`},
		{Options{GRPC: "127.0.0.1:-1"}, `grpc: "127.0.0.1:-1" has the port "-1", allowed is 0 to 65535`},
		{Options{GRPC: "a b:1"}, `grpc: "a b:1" has the host "a b", which is neither a name nor an IP address`},
		{Options{Insecure: true, GRPC: strings.Repeat("x", 253) + ":1"}, ""},
		{Options{Insecure: true, GRPC: strings.Repeat("x", 254) + ":1"}, fmt.Sprintf("grpc: %q has the host %[2]q, "+
			"which is neither a name nor an IP address", strings.Repeat("x", 254)+":1", strings.Repeat("x", 254))},
		{Options{GRPC: "0.0.0.0:9090"}, "grpc: 0.0.0.0:9090" + fmt.Sprintf(notLoopback, "9090")},
		{Options{GRPC: ":9090"}, "grpc: :9090" + fmt.Sprintf(notLoopback, "9090")},
		{Options{GRPC: "weir.example:1"}, "grpc: weir.example:1" + fmt.Sprintf(notLoopback, "1")},
		{Options{GRPC: "10.0.0.1:9090", Insecure: true}, ""},
		{Options{HTTP: "http://127.0.0.1"}, `http: "http://127.0.0.1" has the port "//127.0.0.1", allowed is 0 to 65535`},
		{Options{HTTP: "[::]:80"}, "http: [::]:80" + fmt.Sprintf(notLoopback, "80")},
		{Options{Admin: "[::1]:0"}, ""},
		{Options{Admin: "9100"}, `admin: "9100" is not host:port, such as 127.0.0.1:9090`},
		{Options{Admin: ":9100"}, "admin: :9100" + fmt.Sprintf(notLoopback, "9100")},
		{Options{Admin: ":9100", Insecure: true}, ""},
		{Options{Admin: "10.0.0.1:9100", TLSCert: "c", TLSKey: "k", TLSCA: "a"}, ""},
		{Options{EtcdListen: "10.0.0.1:2379"}, "etcd-listen: 10.0.0.1:2379 is reachable from other machines, and there is no TLS; pass --tls-cert, " +
			"--tls-key and --tls-ca, listen on 127.0.0.1:2379, pass --etcd with an etcd of your own, or pass --insecure if the network is trusted"},
		{Options{TLSCert: "c", TLSKey: "k", TLSCA: "a", GRPC: "10.0.0.1:1"}, ""},
		{Options{TLSCert: "c", TLSKey: "k", TLSCA: "a", EtcdListen: "10.0.0.1:2379"}, ""},
		{Options{TLSCert: "c"}, "tls-cert: --tls-cert needs --tls-key and --tls-ca as well"},
		{Options{TLSKey: "k", TLSCA: "a"}, "tls-cert: --tls-key with --tls-ca needs --tls-cert as well"},
		{Options{TLSCert: "c", TLSKey: "k", TLSCA: "a", Insecure: true}, "tls-cert: a node with TLS does not listen without it: drop --insecure, or the three options of TLS"},
		{Options{TLSClientAuth: "require"}, "tls-client-auth: clients have no certificates without TLS: require needs --tls-cert, --tls-key and --tls-ca"},
		{Options{TLSClientAuth: "maybe"}, `tls-client-auth: "maybe" is none of none, optional and require`},
		{Options{EtcdListen: "10.0.0.1:2379", Etcd: []string{"e:1"}}, ""}, // unused
		{Options{EtcdListen: "2379", Etcd: []string{"e:1"}}, `etcd-listen: "2379" is not host:port, such as 127.0.0.1:9090`},

		{Options{DataDir: "no/such"}, ""}, // it is made
		{Options{DataDir: "options_test.go"}, `data-dir: "options_test.go" is not a directory`},
		{Options{DataDir: "options_test.go/below"}, ""}, // it may be the default one, and a node can do without

		{Options{XDSServer: "eg:18001"}, ""},
		{Options{XDSServer: "https://eg:18001", XDSCert: "c", XDSKey: "k", XDSCA: "a", XDSServerName: "n"}, ""},
		{Options{XDSServer: "eg"}, `xds-server: "eg" is not host:port, such as 127.0.0.1:9090`},
		{Options{XDSServer: "0.0.0.0:1"}, `xds-server: 0.0.0.0:1 names no host to connect to`},
		{Options{XDSServer: "eg:1", Rules: "/r"}, "xds-server: is not for a node with --rules: its rules come from the xDS server or from files"},
		{Options{XDSServer: "eg:1", XDSCA: "a"}, "xds-server: --xds-cert, --xds-key, --xds-ca and --xds-server-name need a server with TLS, as --xds-server https://eg:1"},
		{Options{XDSStartEmpty: true}, "xds-server: --xds-start-empty needs --xds-server as well"},
		{Options{XDSServer: "https://eg:1", XDSCert: "c"}, "xds-cert: --xds-cert needs --xds-key as well"},
		{Options{XDSServer: "https://eg:1", XDSKey: "c"}, "xds-cert: --xds-key needs --xds-cert as well"},
		{Options{XDSServer: "eg:1", XDSMetadata: []string{"a=b", "a=c"}}, `xds-metadata: "a=c" is not a new name, "=" and a value`},
		{Options{XDSServer: "eg:1", XDSMetadata: make([]string, 65)}, `xds-metadata: has 65 entries, at most 64 are allowed`},
		{Options{XDSServer: "eg:1", XDSHeaders: []string{"a b:c"}}, `xds-headers: "a b:c" is not the name and the value of a header field, such as x-tenant:a`},
		{Options{XDSServer: "eg:1", XDSHeaders: []string{"a:b"}}, "xds-headers: would go over the network without TLS; pass --xds-server https://eg:1, or --insecure if the network is trusted"},
		{Options{XDSServer: "eg:1", XDSHeaders: []string{"a:b"}, Insecure: true}, ""},
		{Options{XDSServer: "https://eg:1", XDSHeaders: []string{"a:b"}}, ""},
		{Options{XDSServer: "127.0.0.1:1", XDSHeaders: []string{"a:b"}}, ""},
		{Options{XDSRetry: time.Millisecond}, "xds-retry: 1ms is not between 100ms and 1h0m0s"},
		{Options{XDSRetry: time.Minute, XDSRetryMax: time.Second}, "xds-retry: 1m0s is more than --xds-retry-max, 1s"},
		{Options{XDSRetryMax: 2 * time.Hour}, "xds-retry-max: 2h0m0s is not between 100ms and 1h0m0s"},
		{Options{RLSListen: "0.0.0.0:8081", RLSCert: "c", RLSKey: "k"}, ""},
		{Options{RLSListen: "8081", RLSCert: "c", RLSKey: "k"}, `rls-listen: "8081" is not host:port, such as 127.0.0.1:9090`},
		{Options{RLSListen: ":8081"}, "rls-listen: needs --rls-cert and --rls-key as well; without TLS, Envoy asks at --grpc"},
		{Options{RLSListen: ":8081", RLSCert: "c"}, "rls-listen: needs --rls-key as well; without TLS, Envoy asks at --grpc"},
		{Options{RLSListen: ":8081", RLSCert: "c", RLSKey: "k", RLSClientName: "n"}, "rls-listen: --rls-client-name needs --rls-ca as well"},
		{Options{RLSCert: "c"}, "rls-listen: --rls-cert needs --rls-listen as well"},
		{Options{DecisionLog: "file", DecisionLogWhich: "sampled", DecisionLogSample: 1, DecisionLogKeys: "clear", DecisionLogSize: 1 << 20, DecisionLogFiles: 1000}, ""},
		{Options{TraceEndpoint: "https://collector:4317", TraceSample: 1}, ""},
		{Options{TraceEndpoint: "collector:4317"}, `trace-endpoint: "collector:4317" is not the URL of a collector, such as http://127.0.0.1:4317`},
		{Options{TraceSample: 2}, "trace-sample: 2 is not above 0 and up to 1"},
		{Options{DecisionLogWhich: "none"}, `decision-log-which: "none" is not one of denied, sampled, all`},
		{Options{DecisionLogSample: 1.5}, "decision-log-sample: 1.5 is not above 0 and up to 1"},
		{Options{DecisionLogSample: -0.1}, "decision-log-sample: -0.1 is not above 0 and up to 1"},
		{Options{DecisionLogKeys: "secret"}, `decision-log-keys: "secret" is not one of hashed, clear`},
		{Options{TopKeys: "on"}, `top-keys: "on" is not one of clear, hashed, off`},
		{Options{DecisionLogSize: 1 << 19}, "decision-log-size: 512KiB is not between 1.0MiB and 1.0TiB"},
		{Options{DecisionLogFiles: 1001}, "decision-log-files: 1001 is not between 1 and 1000"},
		{Options{DecisionLogFiles: -1}, "decision-log-files: -1 is not between 1 and 1000"},

		{Options{Advertise: "weir-1.example:9090"}, ""},
		{Options{Advertise: "weir-1:0"}, `advertise: "weir-1:0" has the port "0", allowed is 1 to 65535`},
		{Options{Advertise: "[fe80::1%eth0]:9090"}, `advertise: [fe80::1%eth0]:9090 has the zone "eth0", which means something on this machine only`},
		{Options{Advertise: "0.0.0.0:9090"}, "advertise: 0.0.0.0:9090 names no host that others can reach; " +
			"allowed is the name or the IP address of this machine"},
		{Options{Advertise: "[::ffff:0.0.0.0]:9090"}, "advertise: [::ffff:0.0.0.0]:9090 names no host that others can reach; " +
			"allowed is the name or the IP address of this machine"},
		{Options{GRPC: ":9091", Insecure: true}, "advertise: must be given because grpc listens on :9091, which " +
			"names no host that others can reach; pass for example --advertise HOST:9091"},
		{Options{GRPC: "[::]:9091", Insecure: true, Advertise: "[fd00::1]:9091"}, ""},

		{Options{Cluster: strings.Repeat("x", 65)}, `cluster: "xxxxxxxxxxxxxxxx"... has 65 bytes, at most 64 are allowed`},
		{Options{Cluster: "a/b"}, `cluster: "a/b" has more than letters, digits, '.', '_' and '-'`},

		{Options{Etcd: []string{"http://etcd-1:2379/", "etcd-2:2379"}}, ""},
		{Options{Etcd: []string{"https://etcd-1:2379/", "https://etcd-2:2379"}}, ""},
		{Options{Etcd: []string{"https://etcd-1:2379", "etcd-2:2379"}}, "etcd: etcd-2:2379 is without TLS and others are with it; allowed is https:// before all endpoints, or none"},
		{Options{Etcd: []string{"https://etcd-1"}}, `etcd: "etcd-1" is not host:port, such as 127.0.0.1:9090`},
		{Options{Etcd: []string{"https://e:1", "https://e:1"}}, "etcd: e:1 is listed twice"},
		{Options{Etcd: []string{"e:1"}, EtcdCA: "ca"}, "etcd-cert: --etcd-ca needs endpoints with TLS, as --etcd https://HOST:2379"},
		{Options{EtcdCert: "c", EtcdKey: "k"}, "etcd-cert: --etcd-cert needs endpoints with TLS, as --etcd https://HOST:2379"},
		{Options{Etcd: []string{"https://e:1"}, EtcdCert: "c"}, "etcd-cert: --etcd-cert needs --etcd-key as well"},
		{Options{Etcd: []string{"https://e:1"}, EtcdKey: "k"}, "etcd-cert: --etcd-key needs --etcd-cert as well"},
		{Options{Etcd: []string{"https://e:1"}, EtcdCert: "c", EtcdKey: "k", EtcdCA: "a"}, ""},
		{Options{Etcd: []string{"https://e:1"}, EtcdUser: "weir"}, "etcd-user: --etcd-user needs --etcd-password-file as well"},
		{Options{Etcd: []string{"https://e:1"}, EtcdPasswordFile: "f"}, "etcd-user: --etcd-password-file needs --etcd-user as well"},
		{Options{EtcdUser: "weir", EtcdPasswordFile: "f"}, "etcd-user: --etcd-user is for an etcd of your own: pass --etcd"},
		{Options{Etcd: []string{"10.0.0.1:1"}, EtcdUser: "weir", EtcdPasswordFile: "f"}, "etcd-user: the password would go over the network without TLS; pass https:// endpoints, or --insecure if the network is trusted"},
		{Options{Etcd: []string{"10.0.0.1:1"}, EtcdUser: "weir", EtcdPasswordFile: "f", Insecure: true}, ""},
		{Options{Etcd: []string{"127.0.0.1:1"}, EtcdUser: "weir", EtcdPasswordFile: "f"}, ""},
		{Options{Etcd: []string{"etcd-1"}}, `etcd: "etcd-1" is not host:port, such as 127.0.0.1:9090`},
		{Options{Etcd: []string{""}}, `etcd: "" is not host:port, such as 127.0.0.1:9090`},
		{Options{Etcd: []string{"a:0"}}, `etcd: "a:0" has the port "0", allowed is 1 to 65535`},
		{Options{Etcd: []string{":2379"}}, `etcd: :2379 names no host to connect to`},
		{Options{Etcd: []string{"a:1", "http://a:1"}}, `etcd: a:1 is listed twice`},

		{Options{DomainWeights: []string{"shop=3", "cart=0.01", "a=b=100"}}, ""},
		{Options{DomainWeights: []string{"shop"}}, `domain-weights: "shop" is not a domain and its weight, such as shop=3`},
		{Options{DomainWeights: []string{"=3"}}, `domain-weights: "=3" is not a domain and its weight, such as shop=3`},
		{Options{DomainWeights: []string{"shop=0"}}, `domain-weights: "shop=0" has the weight "0", allowed is 0.01 to 100`},
		{Options{DomainWeights: []string{"shop=101"}}, `domain-weights: "shop=101" has the weight "101", allowed is 0.01 to 100`},
		{Options{DomainWeights: []string{"shop=NaN"}}, `domain-weights: "shop=NaN" has the weight "NaN", allowed is 0.01 to 100`},
		{Options{DomainWeights: []string{"shop="}}, `domain-weights: "shop=" has the weight "", allowed is 0.01 to 100`},
		{Options{DomainWeights: []string{"shop=1", "shop=2"}}, `domain-weights: "shop=2": the domain shop stands there twice`},
		{Options{DomainWeights: make([]string, 257)}, "domain-weights: has 257 entries, at most 256 are allowed"},

		{Options{LogLevel: "debug"}, ""},
		{Options{LogLevel: "INFO"}, `log-level: "INFO" is not one of debug, info, warn, error`},
		{Options{HTTPHosts: []string{"weir.example.com", "LB_1"}}, ""},
		{Options{HTTPHosts: []string{"weir.example.com:8080"}}, `http-hosts: "weir.example.com:8080" is not the name of a host, such as weir.example.com`},
		{Options{HTTPHosts: []string{"*.example.com"}}, `http-hosts: "*.example.com" is not the name of a host, such as weir.example.com`},
		{Options{HTTPHosts: make([]string, 65)}, `http-hosts: 65 names are more than 64`},
		{Options{HTTPHeaders: []string{"none"}}, ""},
		{Options{HTTPHeaders: []string{"draft-6", "x-ratelimit"}, ResetFormat: "epoch"}, ""},
		{Options{HTTPHeaders: []string{"draft-8"}}, `http-headers: "draft-8" is not one of draft, draft-7, draft-6, x-ratelimit, none`},
		{Options{ResetFormat: "date"}, `reset-format: "date" is not one of delta, epoch`},
		{Options{ResetFormat: "epoch", HTTPHeaders: []string{"draft"}}, `reset-format: epoch is for x-ratelimit only, which http-headers has not: draft`},
		{Options{RetryJitter: "0"}, ""},
		{Options{RetryJitter: "100%"}, ""},
		{Options{RetryJitter: "101%"}, `retry-jitter: "101%" is not between 0% and 100%`},
		{Options{RetryJitter: "-1%"}, `retry-jitter: "-1%" is not between 0% and 100%`},
		{Options{RetryJitter: "1.5%"}, `retry-jitter: "1.5%" is not between 0% and 100%`},
		{Options{TrustedProxies: []string{"none"}}, ""},
		{Options{TrustedProxies: []string{"proxy-1"}}, `trusted-proxies: "proxy-1" is not an address nor a block of addresses, such as 10.0.0.0/8 or 2001:db8::/32`},
		{Options{ClientIPHeader: "via"}, `client-ip-header: "via" is not one of X-Forwarded-For, Forwarded, X-Real-Ip`},
		{Options{AuthAttribute: []string{"user=X-User"}}, ""},
		{Options{AuthAttribute: []string{"user"}}, `auth-attribute: "user" is not an attribute and a header field, such as user=X-User`},
		{Options{CounterMemory: 8 << 20}, ""},
		{Options{CounterMemory: 4 << 40}, ""},
		{Options{Pprof: "localhost:0"}, ""},
		{Options{Pprof: "x"}, `pprof: "x" is not host:port, such as 127.0.0.1:9090`},
		{Options{Pprof: "0.0.0.0:6060", Insecure: true}, `pprof: 0.0.0.0:6060 is reachable from other machines; profiles are served on loopback only, such as 127.0.0.1:6060`},
		{Options{PeerTimeout: time.Millisecond}, ""},
		{Options{PeerTimeout: 10 * time.Second}, ""},
		{Options{PeerTimeout: time.Microsecond}, `peer-timeout: 1µs is not between 1ms and 10s`},
		{Options{AuthMaxDelay: 5 * time.Second}, ""},
		{Options{AuthMaxDelay: 6 * time.Second}, `auth-max-delay: 6s is not between 0s and 5s`},
		{Options{SnapshotEvery: time.Second, SnapshotMinWindow: 8760 * time.Hour}, ""},
		{Options{EtcdWait: 2 * time.Hour}, `etcd-wait: 2h0m0s is not between 1s and 1h0m0s`},
		{Options{SnapshotEvery: time.Millisecond}, `snapshot-every: 1ms is not between 1s and 24h0m0s`},
		{Options{SnapshotMinWindow: 8761 * time.Hour}, `snapshot-min-window: 8761h0m0s is not between 1s and 8760h0m0s`},
		{Options{AuthMaxDelay: -time.Second}, `auth-max-delay: -1s is not between 0s and 5s`},
		{Options{PeerTimeout: 11 * time.Second}, `peer-timeout: 11s is not between 1ms and 10s`},
		{Options{LyftAlgorithm: "gcra"}, ""},
		{Options{LyftAlgorithm: "leaky_bucket"}, `lyft-algorithm: "leaky_bucket" is not one of ` + strings.Join(LyftAlgorithms(), ", ")},
		{Options{LyftAlgorithm: "sliding_window_buckets", RLSCountDenied: true}, ""},
		{Options{RLSCountDenied: true}, ""},
		{Options{LyftAlgorithm: "gcra", RLSCountDenied: true}, `rls-count-denied: is not for lyft-algorithm gcra, only for ` + strings.Join(lyftWindows(), ", ")},
		{Options{RLSHeaders: []string{"A", "b-c", "D"}}, ""},
		{Options{RLSHeaders: []string{"A"}}, `rls-headers: has 1 names, not 3: for the limit, what remains, and when it is reset`},
		{Options{RLSHeaders: []string{"A", "b c", "D"}}, `rls-headers: "b c" is not the name of a header`},
		{Options{RLSNearLimit: 1}, ""},
		{Options{RLSNearLimit: -0.1}, `rls-near-limit: -0.1 is not above 0 and up to 1`},
		{Options{RLSNearLimit: math.NaN()}, `rls-near-limit: NaN is not above 0 and up to 1`},
		{Options{CounterMemory: -1}, `counter-memory: -1B is not between 8.0MiB and 4.0TiB`},
		{Options{CounterMemory: 7 << 20}, `counter-memory: 7.0MiB is not between 8.0MiB and 4.0TiB`},
		{Options{CounterMemory: 5 << 40}, `counter-memory: 5.0TiB is not between 8.0MiB and 4.0TiB`},
	}
	for _, test := range tests {
		err := test.options.Validate()
		if got := fmt.Sprint(err); got != test.want && !(err == nil && test.want == "") {
			t.Errorf("%+v:\n got %s\nwant %s", test.options, got, test.want)
		}
		var optionErr *OptionError
		if err != nil && !errors.As(err, &optionErr) {
			t.Errorf("%+v: got a %T, want an *OptionError", test.options, err)
		}
	}
}

func TestOptionsWithoutHome(t *testing.T) {
	t.Setenv("HOME", "")
	t.Setenv("XDG_STATE_HOME", "relative/is/ignored")
	const want = "data-dir: must be given because neither XDG_STATE_HOME nor HOME is set"
	if err := (Options{}).Validate(); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	for _, o := range []Options{{DataDir: "/data"}, {Etcd: []string{"e:1"}}} {
		if err := o.Validate(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestOptionsWithDefaults(t *testing.T) {
	t.Setenv("HOME", "/home/weir")
	t.Setenv("XDG_STATE_HOME", "")
	host := hostName()
	defaults := Options{
		ID: host + "-9090", GRPC: "127.0.0.1:9090", HTTP: "127.0.0.1:8080", Advertise: "127.0.0.1:9090",
		Cluster: "default", EtcdListen: "127.0.0.1:2379", DataDir: "/home/weir/.local/state/weir/" + host + "-9090",
		LogLevel: "info", CounterMemory: 1 << 30, PeerTimeout: 25 * time.Millisecond,
		EtcdWait: 5 * time.Second, SnapshotEvery: time.Minute, SnapshotMinWindow: 10 * time.Minute,
		HTTPHeaders: []string{"draft", "x-ratelimit"}, ResetFormat: "delta", RetryJitter: "10%",
		TrustedProxies: []string{"127.0.0.0/8", "::1"}, ClientIPHeader: "X-Forwarded-For",
		TraceSample: 0.01, DecisionLogWhich: "denied", DecisionLogSample: 0.01, DecisionLogKeys: "hashed", DecisionLogSize: 100 << 20, DecisionLogFiles: 10, TopKeys: "clear",
		TLSClientAuth: "optional", RulesFiles: "yaml", LyftAlgorithm: "fixed_window", RLSNearLimit: 0.8,
		XDSNodeID: "default", XDSRetry: time.Second, XDSRetryMax: 30 * time.Second,
	}
	tests := []struct {
		name     string
		options  Options
		expected func(*Options)
	}{
		{"zero", Options{}, func(*Options) {}},
		{"twice", Options{}.WithDefaults(), func(*Options) {}},
		{"id", Options{ID: "a"}, func(o *Options) { o.ID, o.DataDir = "a", "/home/weir/.local/state/weir/a" }},
		{"free port", Options{GRPC: "127.0.0.1:0"}, func(o *Options) {
			o.GRPC, o.ID, o.Advertise, o.DataDir = "127.0.0.1:0", "", "", ""
		}},
		{"wildcard", Options{GRPC: "0.0.0.0:9090"}, func(o *Options) { o.GRPC, o.Advertise = "0.0.0.0:9090", "" }},
		{"etcd", Options{Etcd: []string{"http://a:1/", "b:2"}}, func(o *Options) { o.Etcd = []string{"a:1", "b:2"} }},
	}
	for _, test := range tests {
		want := defaults
		test.expected(&want)
		if got := test.options.WithDefaults(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", test.name, got, want)
		}
	}

	t.Setenv("XDG_STATE_HOME", "/state")
	if got := (Options{ID: "a"}).WithDefaults().DataDir; got != "/state/weir/a" {
		t.Errorf("data-dir is %s, want /state/weir/a", got)
	}
	in := Options{Etcd: []string{"http://a:1"}}
	if in.WithDefaults(); in.Etcd[0] != "http://a:1" {
		t.Error("WithDefaults has written to the caller's Etcd")
	}
}

// TestOptionsDocumentation holds the comments of the fields against the code.
func TestOptionsDocumentation(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "options.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	defaults := reflect.ValueOf(Options{}.WithDefaults())
	stated := regexp.MustCompile(`(?:Default|means the default,) "?([^\s"]*[^\s".,])`)
	var fields []*ast.Field
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok && spec.Name.Name == "Options" {
			fields = spec.Type.(*ast.StructType).Fields.List
		}
		return true
	})
	if len(fields) != defaults.NumField() {
		t.Fatalf("found %d fields, want %d", len(fields), defaults.NumField())
	}
	for _, field := range fields {
		name, doc := field.Names[0].Name, strings.Join(strings.Fields(field.Doc.Text()), " ")
		match := stated.FindStringSubmatch(doc)
		switch {
		case match == nil && !strings.Contains(doc, "Empty means"):
			t.Errorf("%s: the comment says neither what the default is nor what empty means", name)
		case match != nil:
			want := fmt.Sprint(defaults.FieldByName(name).Interface())
			if got := strings.ReplaceAll(match[1], ",", ""); got != want {
				t.Errorf("%s: the comment says default %s, the code %s", name, got, want)
			}
		}
	}
}

// What is validated is what is used.
func TestOptionsForHTTP(t *testing.T) {
	o := Options{
		HTTPHeaders: []string{"draft-7", "x-ratelimit"}, ResetFormat: "epoch", RetryJitter: "25%",
		TrustedProxies: []string{"10.0.0.0/8"}, ClientIPHeader: "x-real-ip", AuthAttribute: []string{"user=x-user"},
		AuthMaxDelay: time.Second,
	}.WithDefaults()
	wantStyle := headers.Style{Forms: []headers.Form{headers.Draft7, headers.XRateLimit}, Epoch: true, Jitter: 25}
	if got := o.style(); !reflect.DeepEqual(got, wantStyle) {
		t.Errorf("got %+v, want %+v", got, wantStyle)
	}
	wantAuth := api.AuthConfig{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, ClientIPHeader: "X-Real-Ip",
		Attributes: []api.AuthAttribute{{Name: "user", Header: "X-User"}}, MaxDelay: time.Second,
	}
	if got := o.auth(); !reflect.DeepEqual(got, wantAuth) {
		t.Errorf("got %+v, want %+v", got, wantAuth)
	}
	if got := (Options{}).WithDefaults().style(); !reflect.DeepEqual(got, headers.DefaultStyle()) {
		t.Errorf("without options: %+v", got)
	}
}
