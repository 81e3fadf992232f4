package main

import (
	"os"
	"testing"
)

// TestConfigCheck: what weir serve would use, and where it comes from, or all that is wrong.
func TestConfigCheck(t *testing.T) {
	t.Chdir(t.TempDir())
	const good = "grpc: 127.0.0.1:7000\nlog-level: warn\netcd: [a:1, b:2]\n"
	const wrong = "grpc: 127.0.0.1:7000\nlog_level: warn\npeer-timeout: soon\ninsecure: maybe\ngrpc: x\nid: [a]\n"
	for _, test := range []struct {
		file string
		env  []string
		args []string
		want outcome
	}{
		{good, nil, []string{"weir.yaml"}, outcome{0, `OPTION     VALUE           FROM
grpc       127.0.0.1:7000  weir.yaml:1
etcd       a:1,b:2         weir.yaml:3
log-level  warn            weir.yaml:2

good: 3 options set
`, ""}},
		{good, []string{"WEIR_LOG_LEVEL=debug", "WEIR_CONFIG=weir.yaml", "WEIR_LOGLEVEL=x"}, nil, outcome{0, `OPTION     VALUE           FROM
grpc       127.0.0.1:7000  weir.yaml:1
etcd       a:1,b:2         weir.yaml:3
log-level  debug           WEIR_LOG_LEVEL

good: 3 options set
`, "warning: unknown environment variable WEIR_LOGLEVEL; did you mean WEIR_LOG_LEVEL?\n"}},
		{good, []string{"RUNTIME_ROOT=/r", "REDIS_URL=r:1", "WEIR_INSECURE=true"}, []string{"weir.yaml"}, outcome{2, "",
			"warning: REDIS_URL of envoyproxy/ratelimit ignored: counters live in the nodes\n" +
				"weir: --advertise: must be given because grpc listens on 0.0.0.0:8081, which names no host that others can reach; pass for example --advertise HOST:8081\n"}},
		{good, nil, nil, outcome{0, "good: 0 options set\n", ""}},
		{"# nothing\n", nil, []string{"weir.yaml"}, outcome{0, "good: 0 options set\n", ""}},
		{wrong, nil, []string{"weir.yaml"}, outcome{2, "", `weir: weir.yaml:2: unknown key "log_level"; did you mean log-level?
weir.yaml:5: grpc is given twice, first in line 1
weir.yaml:6: id: is a list, allowed is one value
weir.yaml:4: insecure: "maybe" is not true or false
weir.yaml:3: peer-timeout: "soon" is not a duration, such as 25ms or 1s
`}},
		{"grpc: 7000\nhttp: 8000\n", []string{"WEIR_LOG_LEVEL=loud"}, []string{"weir.yaml"}, outcome{2, "", `weir: weir.yaml:1: grpc: "7000" is not host:port, such as 127.0.0.1:9090
weir.yaml:2: http: "8000" is not host:port, such as 127.0.0.1:9090
WEIR_LOG_LEVEL: "loud" is not one of debug, info, warn, error
`}},
		{"grpc: *\n", nil, []string{"weir.yaml"}, outcome{2, "", "weir: weir.yaml:1:7: not valid YAML: a value cannot begin with *; put it in quotes: \"*\"\n"}},
	} {
		if err := os.WriteFile("weir.yaml", []byte(test.file), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := weir(t, test.env, append([]string{"config", "check"}, test.args...)...); got != test.want {
			t.Errorf("%q %v %v:\n got %+v\nwant %+v", test.file, test.env, test.args, got, test.want)
		}
	}
}
