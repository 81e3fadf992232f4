package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir/node"
)

// runVariable makes the test binary run as weir, so that commands can start each other.
const runVariable = "WEIR_TEST_RUN"

func TestMain(m *testing.M) {
	if os.Getenv(runVariable) != "" {
		os.Exit(newApp(os.Environ(), os.Stdout, os.Stderr).run(os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

// outcome is what a command line led to.
type outcome struct {
	code           int
	stdout, stderr string
}

// weir runs a command line in this process, with a node that must not be run.
func weir(t *testing.T, env []string, args ...string) outcome {
	t.Helper()
	return weirWith(t, "", env, args...)
}

// weirWith is weir with something to read on standard input.
func weirWith(t *testing.T, stdin string, env []string, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	a := newApp(env, &stdout, &stderr)
	a.stdin = strings.NewReader(stdin)
	a.runNode = func(context.Context, node.Options, *slog.Logger, func(node.Info)) error {
		t.Errorf("weir %s has started a node", strings.Join(args, " "))
		return nil
	}
	code := a.run(args)
	return outcome{code, stdout.String(), stderr.String()}
}

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
		{"check", `nothing says who asks; add for example user=alice`},
		{"check endpoint=/a", `nothing says who asks; add for example user=alice`},
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
		{"rules apply", `nothing says which rules; add for example -f rules.yaml`},
		{"rules lint", `nothing says which rules; add for example -f rules.yaml`},
		{"rules diff x", `diff takes no arguments, but got "x"`},
		{"rules list --timeout=0s", `--timeout: 0s is not above 0`},
		{"rules list x", `list takes no arguments, but got "x"`},
		{"rules get", `get takes the id of one rule, but got 0 arguments`},
		{"rules delete a b", `delete takes the id of one rule, but got 2 arguments`},
		{"rules export -o x --json", `--output writes a file of rules, --json prints JSON; leave one of them out`},
		{"nodes x", `nodes takes no arguments, but got "x"`},
		{"ring x", `ring takes no arguments, but got "x"`},
		{"version x", `version takes no arguments, but got "x"`},
	}
	for _, test := range tests {
		args := strings.Fields(test.args)
		command := "weir"
		if args[0] == "rules" {
			command += " rules"
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

// TestHelp holds the help texts to what a terminal shows well, and every command
// to having examples.
func TestHelp(t *testing.T) {
	for _, command := range []string{
		"", "serve", "check", "nodes", "ring", "version", "rules",
		"rules apply", "rules diff", "rules lint", "rules list", "rules get", "rules delete", "rules export",
		"bench", "bench grpc", "bench engine", "bench floor",
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
