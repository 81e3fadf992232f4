package main

import (
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
)

// The tests of this package run command lines within the test's process:
//
//	got := weir(t, []string{"WEIR_NODE=" + address}, "check", "user=alice")
//	// got.code, got.stdout and got.stderr are what the user sees
//
// The environment is the one that is passed, not the test's. A test with a node starts one in this process, or serves the API by
// a fake. No command line may start a node: weir replaces what serve calls, and fails the test. A command that starts weir
// itself, in a process of its own, starts the test binary, which runs as weir because of runVariable. Nothing is left behind:
// TestMain fails if a goroutine is. Tests of real processes are in test/e2e.

// runVariable makes the test binary run as weir, so that commands can start each other.
const runVariable = "WEIR_TEST_RUN"

func TestUsageErrors(t *testing.T) {
	tests := []struct{ args, want string }{
		{"serv", `unknown command "serv"; did you mean serve?`},
		{"frobnicate", `unknown command "frobnicate"`},
		{"--frobnicate", `unknown flag --frobnicate`},
		{"serve now", `serve takes no arguments, but got "now"`},
		{"serve --gprc=x", `unknown flag --gprc; did you mean --grpc?`},
		{"serve --data_dir=x", `unknown flag --data_dir; did you mean --data-dir?`},
		{"serve -g", `unknown shorthand flag: 'g' in -g`},
		{"serve --grpc", `flag needs an argument: --grpc`},
		{"check", `missing identifier: add KEY=VALUE, such as user=alice`},
		{"check endpoint=/a", `missing identifier: add KEY=VALUE, such as user=alice`},
		{"check alice", `"alice" is not KEY=VALUE, such as user=alice`},
		{"check =alice", `"=alice" is not KEY=VALUE, such as user=alice`},
		{"check user=a user=b", `user is given twice`},
		{"check user=a --cost=x", `--cost: "x" is not a whole number`},
		{"check user=a --cost=0", `--cost: 0 is not between 1 and 2147483648, or below 0 to give tokens back; to look and count nothing pass --peek`},
		{"check user=a --cost=2147483649", `--cost: 2147483649 is not between 1 and 2147483648, or below 0 to give tokens back; to look and count nothing pass --peek`},
		{"check user=a --peek=x", `--peek: "x" is not true or false`},
		{"check user=a --timeout=5", `--timeout: "5" is not a duration, such as 500ms or 2s`},
		{"check user=a --timeout=0s", `--timeout: 0s is not above 0`},
		{"rules appl", `unknown command "appl"; did you mean apply?`},
		{"rules apply", `missing rules: add -f FILE, such as -f rules.yaml`},
		{"rules lint", `missing rules: add -f FILE, such as -f rules.yaml`},
		{"rules diff x", `diff takes no arguments, but got "x"`},
		{"rules list --timeout=0s", `--timeout: 0s is not above 0`},
		{"rules list x", `list takes no arguments, but got "x"`},
		{"rules get", `get takes the id of one rule, but got 0 arguments`},
		{"rules delete a b", `delete takes the id of one rule, but got 2 arguments`},
		{"rules export -o x --json", `--output writes a file of rules, --json prints JSON; leave one of them out`},
		{"nodes x", `nodes takes no arguments, but got "x"`},
		{"ring x", `ring takes no arguments, but got "x"`},
		{"version x", `version takes no arguments, but got "x"`},
		{"config chek", `unknown command "chek"; did you mean check?`},
		{"config check a b", `check takes one file at most, but got ["a" "b"]`},
		{"completion foo", `unknown command "foo"`},
	}
	for _, test := range tests {
		args := strings.Fields(test.args)
		command := "weir"
		if args[0] == "rules" || args[0] == "config" || args[0] == "completion" {
			command += " " + args[0]
			if !strings.HasPrefix(test.want, "unknown command") {
				command += " " + args[1]
			}
		} else if !strings.HasPrefix(test.want, "unknown command") && args[0] != "--frobnicate" {
			command += " " + args[0]
		}
		want := outcome{2, "", "weir: " + test.want + "\nRun \"" + command + " --help\" for how to use it.\n"}
		if got := weir(t, nil, args...); got != want {
			t.Errorf("weir %s:\n got %+v\nwant %+v", test.args, got, want)
		}
	}
}

// TestBadValues: a bad value, in any place, exits with 2 and is named.
func TestBadValues(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("weir.yaml", []byte("grpc: 127.0.0.1:7000\nlog-level: loud\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("rules.yaml", []byte("domain: d\nrules: [{id: r, limits: [{limit: 1, window: 5}]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ env, args, want string }{
		{"", "serve --log-level=loud", `--log-level: "loud" is not one of`},
		{"WEIR_LOG_LEVEL=loud", "serve", `WEIR_LOG_LEVEL: "loud" is not one of`},
		{"", "serve --config weir.yaml", `weir.yaml:2: log-level: "loud" is not one of`},
		{"WEIR_CONFIG=weir.yaml", "serve", `weir.yaml:2: log-level: "loud" is not one of`},
		{"", "serve --config /no/such", `--config: open /no/such: no such file`},
		{"", "serve --peer-timeout=soon", `--peer-timeout: "soon" is not a duration`},
		{"RUNTIME_ROOT=/r LOG_LEVEL=loud", "serve", `LOG_LEVEL: "loud" is not one of`},
		{"", "config check weir.yaml", `weir.yaml:2: log-level: "loud" is not one of`},
		{"", "config check /no/such", `open /no/such: no such file`},
		{"", "check user=alice --cost=0", `--cost: 0 is not between`},
		{"", "check user=alice --node=9090", `--node: address "9090" is not host:port`},
		{"WEIR_NODE=9090", "status user=alice", `WEIR_NODE: address "9090" is not host:port`},
		{"", "doctor --node=9090", `--node: address "9090" is not host:port`},
		{"WEIR_NODE=9090", "support-bundle", `WEIR_NODE: address "9090" is not host:port`},
		{"", "explain alice", `"alice" is not KEY=VALUE`},
		{"", "reset user=a user=b", `user is given twice`},
		{"", "nodes --timeout=-1s", `--timeout: -1s is not above 0`},
		{"", "drain", `drain takes the id of one node`},
		{"", "rules apply -f rules.yaml", `rules.yaml:2:45: rule "r": limits[0].window: "5" is not a duration`},
		{"", "rules diff -f /no/such", `/no/such: stat: no such file`},
		{"", "rules lint -f /no/such", `/no/such: stat: no such file`},
		{"", "rules lint -f rules.yaml -f rules.yaml", `--file: rules.yaml is given twice`},
		{"", "bench grpc --rate=-1", `--rate: -1 is not between`},
		{"", "bench engine --algorithm=x", `--algorithm: "x" is not one of`},
		{"", "bench baseline --listen=x", `--listen: listen tcp: address x: missing port`},
		{"", "help nothing", `there is no command "nothing"`},
		{"", "completion nothing", `unknown command "nothing"`},
	} {
		got := weir(t, strings.Fields(test.env), strings.Fields(test.args)...)
		if got.code != 2 || got.stdout != "" || !strings.HasPrefix(got.stderr, "weir: ") || !strings.Contains(got.stderr, test.want) {
			t.Errorf("%s weir %s: %+v, want 2 and %s", test.env, test.args, got, test.want)
		}
	}
}

// TestHelp holds the help texts to what a terminal shows well, and every command
// to having examples.
func TestHelp(t *testing.T) {
	for _, command := range []string{
		"", "serve", "check", "nodes", "ring", "version", "rules",
		"rules apply", "rules diff", "rules lint", "rules list", "rules get", "rules delete", "rules export",
		"config", "config check", "bench", "bench grpc", "bench engine", "bench baseline",
	} {
		got := weir(t, nil, append(strings.Fields(command), "--help")...)
		if got.code != 0 || got.stderr != "" {
			t.Errorf("weir %s --help: %+v", command, got)
		}
		if !strings.Contains(got.stdout, "Examples:\n  ") || !strings.Contains(got.stdout, "Usage:\n  weir") {
			t.Errorf("weir %s --help lacks something:\n%s", command, got.stdout)
		}
		for line := range strings.Lines(got.stdout) {
			if len(line) > 101 {
				t.Errorf("weir %s --help has a line of %d bytes: %s", command, len(line), line)
			}
		}
	}
	if bare, help := weir(t, nil), weir(t, nil, "--help"); bare != help {
		t.Errorf("weir alone: %+v", bare)
	}
}

func TestVersion(t *testing.T) {
	want := regexp.MustCompile(`^weir \S+ \(commit .+, go\S* \w+/\w+\)\n$`)
	for _, arg := range []string{"version", "--version"} {
		if got := weir(t, nil, arg); got.code != 0 || !want.MatchString(got.stdout) {
			t.Errorf("weir %s: %+v", arg, got)
		}
	}

	plain := &debug.BuildInfo{GoVersion: "go1.26.8"}
	built := &debug.BuildInfo{GoVersion: "go1.26.8", Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.modified", Value: "true"},
	}}
	tests := []struct {
		version string
		info    *debug.BuildInfo
		want    string
	}{
		{"(devel)", plain, "weir (devel) (commit unknown, go1.26.8 "},
		{"v2.0.0", built, "weir v2.0.0 (commit 0123456789ab with changes, go1.26.8 "},
	}
	for _, test := range tests {
		if got := formatVersion(test.version, test.info); !strings.HasPrefix(got, test.want) {
			t.Errorf("got %s, want %s...", got, test.want)
		}
	}
}

func TestDidYouMean(t *testing.T) {
	candidates := []string{"id", "grpc", "http", "etcd", "etcd-listen"}
	tests := []struct{ name, want string }{
		{"grp", "; did you mean grpc?"},
		{"gprc", "; did you mean grpc?"},
		{"etcd_listen", "; did you mean etcd-listen?"},
		{"etcds", "; did you mean etcd?"},
		{"xy", ""}, // two mistakes away from id, but nothing alike
		{"", ""},
		{"rules", ""},
	}
	for _, test := range tests {
		if got := didYouMean(test.name, candidates); got != test.want {
			t.Errorf("%q: got %q, want %q", test.name, got, test.want)
		}
	}
}
