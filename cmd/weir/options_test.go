package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/node"
)

// read resolves options from flags, from environment entries and from the
// content of a configuration file, if that is not empty.
func read(t *testing.T, args, environ []string, file string) (node.Options, error) {
	t.Helper()
	if file != "" {
		t.Chdir(t.TempDir())
		if err := os.WriteFile("weir.yaml", []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append([]string{"--config=weir.yaml"}, args...)
	}
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	addOptions(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	opts, _, err := readOptions(flags, newApp(environ, nil, nil).env)
	return opts, err
}

// samples hold for each option two values, as text and as they show in Options.
var samples = map[string][2]string{
	"id":          {"a", "b"},
	"grpc":        {"127.0.0.1:1", "127.0.0.1:2"},
	"http":        {"127.0.0.1:1", "127.0.0.1:2"},
	"admin":       {"127.0.0.1:1", "127.0.0.1:2"},
	"advertise":   {"a:1", "b:2"},
	"cluster":     {"a", "b"},
	"etcd":        {"a:1,b:2", "c:3"},
	"etcd-listen": {"127.0.0.1:1", "127.0.0.1:2"},
	"data-dir":    {"/a", "/b"},
	"rules":       {"/a", "/b"},
	"rules-files": {"all", "visible"},
	"insecure":    {"true", "false"},

	"xds-server":      {"a:1", "https://b:2"},
	"xds-node-id":     {"a", "b"},
	"xds-metadata":    {"a=b,c=d", "e=f"},
	"xds-headers":     {"a:b,c:d", "e:f"},
	"xds-cert":        {"a.crt", "b.crt"},
	"xds-key":         {"a.key", "b.key"},
	"xds-ca":          {"a.crt", "b.crt"},
	"xds-server-name": {"a", "b"},
	"xds-retry":       {"2s", "200ms"},
	"xds-retry-max":   {"1m0s", "5s"},
	"xds-start-empty": {"true", "false"},
	"rls-listen":      {"0.0.0.0:1", "127.0.0.1:2"},
	"rls-cert":        {"a.crt", "b.crt"},
	"rls-key":         {"a.key", "b.key"},
	"rls-ca":          {"a.crt", "b.crt"},
	"rls-client-name": {"a", "b"},

	"log-level":      {"debug", "error"},
	"counter-memory": {"9.0MiB", "8.0GiB"},
	"pprof":          {"127.0.0.1:1", "127.0.0.1:2"},
	"peer-timeout":   {"5ms", "7ms"},
	"http-hosts":     {"a,b", "c"},
	"http-headers":   {"x-ratelimit,draft-7", "x-ratelimit"},
	"reset-format":   {"epoch", "delta"},
	"retry-jitter":   {"0%", "25%"},

	"domain-weights": {"shop=3,cart=0.5", "shop=1"},
	"forget-denials": {"true", "false"},
	"lend-nothing":   {"true", "false"},

	"snapshot-every":      {"5s", "2m0s"},
	"snapshot-min-window": {"1m0s", "1h0m0s"},
	"forget-counters":     {"true", "false"},

	"trusted-proxies":  {"10.0.0.0/8,192.0.2.1", "none"},
	"client-ip-header": {"Forwarded", "x-real-ip"},
	"auth-attribute":   {"user=X-User,key=X-Api-Key", "user=X-Other"},
	"auth-max-delay":   {"250ms", "5s"},

	"lyft-algorithm":      {"sliding_window", "sliding_window_buckets"},
	"merge-domains":       {"true", "false"},
	"rls-count-denied":    {"true", "false"},
	"rls-shadow":          {"true", "false"},
	"rls-quota":           {"true", "false"},
	"etcd-cert":           {"a.crt", "b.crt"},
	"etcd-key":            {"a.key", "b.key"},
	"etcd-ca":             {"a.crt", "b.crt"},
	"etcd-user":           {"weir", "root"},
	"etcd-wait":           {"7s", "8s"},
	"etcd-password-file":  {"a", "b"},
	"tls-cert":            {"a.crt", "b.crt"},
	"tls-key":             {"a.key", "b.key"},
	"tls-ca":              {"a.crt", "b.crt"},
	"tls-client-auth":     {"none", "optional"},
	"tokens":              {"a", "b"},
	"audit-log":           {"stderr", "file"},
	"trace-endpoint":      {"http://a:4317", "https://b:4317"},
	"trace-sample":        {"0.5", "1"},
	"decision-log":        {"stderr", "file"},
	"decision-log-which":  {"sampled", "all"},
	"decision-log-sample": {"0.5", "1"},
	"decision-log-keys":   {"clear", "hashed"},
	"decision-log-size":   {"2.0MiB", "3.0GiB"},
	"decision-log-files":  {"3", "1000"},
	"top-keys":            {"hashed", "off"},
	"rls-headers":         {"a,b,c", "d,e,f"},
	"rls-metadata":        {"true", "false"},
	"rls-near-limit":      {"0.5", "1"},
	"health-needs-rules":  {"true", "false"},
}

// companions are the variables that an option needs.
var companions = map[string][]string{
	"etcd-cert":          {"WEIR_ETCD=https://etcd:2379", "WEIR_ETCD_KEY=key"},
	"etcd-key":           {"WEIR_ETCD=https://etcd:2379", "WEIR_ETCD_CERT=cert"},
	"etcd-ca":            {"WEIR_ETCD=https://etcd:2379"},
	"etcd-user":          {"WEIR_ETCD=https://etcd:2379", "WEIR_ETCD_PASSWORD_FILE=file"},
	"etcd-password-file": {"WEIR_ETCD=https://etcd:2379", "WEIR_ETCD_USER=user"},
	"tokens":             {"WEIR_TLS_CERT=cert", "WEIR_TLS_KEY=key", "WEIR_TLS_CA=ca"},
	"xds-metadata":       {"WEIR_XDS_SERVER=a:1"},
	"xds-headers":        {"WEIR_XDS_SERVER=https://a:1"},
	"xds-cert":           {"WEIR_XDS_SERVER=https://a:1", "WEIR_XDS_KEY=key"},
	"xds-key":            {"WEIR_XDS_SERVER=https://a:1", "WEIR_XDS_CERT=cert"},
	"xds-ca":             {"WEIR_XDS_SERVER=https://a:1"},
	"xds-server-name":    {"WEIR_XDS_SERVER=https://a:1"},
	"xds-start-empty":    {"WEIR_XDS_SERVER=a:1"},
	"rls-listen":         {"WEIR_RLS_CERT=cert", "WEIR_RLS_KEY=key"},
	"rls-cert":           {"WEIR_RLS_LISTEN=a:1", "WEIR_RLS_KEY=key"},
	"rls-key":            {"WEIR_RLS_LISTEN=a:1", "WEIR_RLS_CERT=cert"},
	"rls-ca":             {"WEIR_RLS_LISTEN=a:1", "WEIR_RLS_CERT=cert", "WEIR_RLS_KEY=key"},
	"rls-client-name":    {"WEIR_RLS_LISTEN=a:1", "WEIR_RLS_CERT=cert", "WEIR_RLS_KEY=key", "WEIR_RLS_CA=ca"},
	"tls-cert":           {"WEIR_TLS_KEY=key", "WEIR_TLS_CA=ca"},
	"tls-key":            {"WEIR_TLS_CERT=cert", "WEIR_TLS_CA=ca"},
	"tls-ca":             {"WEIR_TLS_CERT=cert", "WEIR_TLS_KEY=key"},
}

// field returns the field that an option sets, as text: the one whose name is the
// option's without its dashes.
func field(t *testing.T, opts node.Options, option string) string {
	t.Helper()
	value := reflect.ValueOf(opts).FieldByNameFunc(func(name string) bool {
		return strings.EqualFold(name, strings.ReplaceAll(option, "-", ""))
	})
	if !value.IsValid() {
		t.Fatalf("node.Options has no field for %s", option)
	}
	if items, ok := value.Interface().([]string); ok {
		return strings.Join(items, ",")
	}
	return fmt.Sprint(value.Interface())
}

// TestOptionsPrecedence tries, for every option, all ways to give it in several
// places: a flag wins over the environment, that over the file.
func TestOptionsPrecedence(t *testing.T) {
	if got, want := len(options()), reflect.TypeFor[node.Options]().NumField(); got != want {
		t.Fatalf("there are %d options for %d fields", got, want)
	}
	for _, o := range options() {
		first, other := samples[o.name][0], samples[o.name][1]
		flag := func(text string) []string { return []string{"--" + o.name + "=" + text} }
		env := func(text string) []string { return []string{variable(o.name) + "=" + text} }
		file := func(text string) string { return o.name + ": " + text + "\n" }
		unset := field(t, node.Options{}.WithDefaults(), o.name)
		tests := []struct {
			name      string
			args, env []string
			file      string
			want      string
		}{
			{"nowhere", nil, nil, "", unset},
			{"empty variable", nil, env(""), "", unset},
			{"file", nil, nil, file(first), first},
			{"variable", nil, env(first), "", first},
			{"flag", flag(first), nil, "", first},
			{"variable, file", nil, env(first), file(other), first},
			{"file, empty variable", nil, env(""), file(first), first},
			{"flag, file", flag(first), nil, file(other), first},
			{"flag, variable", flag(first), env(other), "", first},
			{"all", flag(first), env(other), file(other), first},
		}
		for _, test := range tests {
			t.Run(o.name+"/"+test.name, func(t *testing.T) {
				env := test.env
				if test.want != unset {
					env = append(slices.Clone(env), companions[o.name]...)
				}
				opts, err := read(t, test.args, env, test.file)
				if err != nil {
					t.Fatal(err)
				}
				if got := field(t, opts, o.name); got != test.want {
					t.Errorf("got %s, want %s", got, test.want)
				}
			})
		}
	}
}

// TestOptionsDefaults holds the flags' help against the defaults of node.
func TestOptionsDefaults(t *testing.T) {
	defaults := node.Options{}.WithDefaults()
	for _, o := range options() {
		want := field(t, defaults, o.name)
		switch {
		case o.kind == "bool":
			if want != "false" || o.initial != "" {
				t.Errorf("%s: a switch must be off by default", o.name)
			}
		case strings.Contains(o.usage, "(default"):
			// Depends on the machine or on other options.
			if o.initial != "" {
				t.Errorf("%s: help states two defaults", o.name)
			}
		case o.initial != want:
			t.Errorf("%s: help says default %q, node has %q", o.name, o.initial, want)
		}
	}
}

func TestOptionsLists(t *testing.T) {
	tests := []struct {
		args []string
		file string
		want []string
	}{
		{[]string{"--etcd=a:1", "--etcd=b:2,c:3"}, "", []string{"a:1", "b:2", "c:3"}},
		{[]string{"--etcd=a:1, http://b:2"}, "", []string{"a:1", "b:2"}},
		{nil, "etcd: [a:1, \"b:2\"]\n", []string{"a:1", "b:2"}},
		{nil, "etcd: &e\n  - a:1\n  - b:2\n", []string{"a:1", "b:2"}},
		{nil, "etcd: []\n", nil},
		{[]string{"--etcd="}, "etcd: a:1\n", nil}, // back to an embedded one
		{nil, "# nothing\n", nil},
		{nil, "---\n", nil},
		{[]string{"--id=a", "--id=b"}, "", nil}, // not a list: the last one counts
	}
	for _, test := range tests {
		opts, err := read(t, test.args, nil, test.file)
		if err != nil || !slices.Equal(opts.Etcd, test.want) {
			t.Errorf("%v %q: got %v, %v, want %v", test.args, test.file, opts.Etcd, err, test.want)
		}
		if len(test.args) == 2 && test.args[0] == "--id=a" && opts.ID != "b" {
			t.Errorf("%v: id is %s", test.args, opts.ID)
		}
	}
}

func TestOptionsSizes(t *testing.T) {
	for _, text := range []string{"67108864", "64MiB", `"64 MiB"`, "64mib", "67.108864MB"} {
		if opts, err := read(t, nil, nil, "counter-memory: "+text+"\n"); err != nil || opts.CounterMemory != 64<<20 {
			t.Errorf("%s: got %v, %v", text, opts.CounterMemory, err)
		}
	}
}

func TestOptionsErrors(t *testing.T) {
	tests := []struct {
		args, env []string
		file      string
		want      string
	}{
		{[]string{"--grpc=9090"}, nil, "", `--grpc: "9090" is not host:port, such as 127.0.0.1:9090`},
		{nil, []string{"WEIR_GRPC=9090"}, "", `WEIR_GRPC: "9090" is not host:port, such as 127.0.0.1:9090`},
		{nil, nil, "id: a\ngrpc: 9090\n", `weir.yaml:2: grpc: "9090" is not host:port, such as 127.0.0.1:9090`},
		{nil, []string{"WEIR_GRPC=0.0.0.0:9090"}, "", "WEIR_GRPC: 0.0.0.0:9090 is reachable from other machines and there is no TLS; pass --tls-cert, --tls-key and --tls-ca, " +
			"listen on 127.0.0.1:9090, or pass --insecure if the network is trusted"},
		{nil, nil, "grpc: :1\ninsecure: true\n", "--advertise: must be given because grpc listens on :1, which " +
			"names no host that others can reach; pass for example --advertise HOST:1"},
		{[]string{"--insecure=maybe"}, nil, "", `--insecure: "maybe" is not true or false`},
		{nil, []string{"WEIR_INSECURE=yes"}, "", `WEIR_INSECURE: "yes" is not true or false`},
		{nil, nil, "insecure: yes", `weir.yaml:1: insecure: "yes" is not true or false`},
		{[]string{"--peer-timeout=0s"}, nil, "", `--peer-timeout: "0s" is not above 0`},
		{[]string{"--counter-memory=0"}, nil, "", `--counter-memory: "0" is not above 0`},
		{[]string{"--rls-near-limit=0"}, nil, "", `--rls-near-limit: "0" is not above 0`},
		{[]string{"--decision-log-files=few"}, nil, "", `--decision-log-files: "few" is not a number, such as 10`},
		{[]string{"--decision-log-files=0"}, nil, "", `--decision-log-files: "0" is not above 0`},
		{[]string{"--peer-timeout=10"}, nil, "", `--peer-timeout: "10" is not a duration, such as 25ms or 1s`},
		{[]string{"--counter-memory=much"}, nil, "", `--counter-memory: "much" is not a size, such as 512MiB or 8GiB`},
		{nil, nil, "counter-memory: -1", `weir.yaml:1: counter-memory: "-1" is not a size, such as 512MiB or 8GiB`},
		{nil, nil, "counter-memory: 1kB", `weir.yaml:1: counter-memory: 1000B is not between 8.0MiB and 4.0TiB`},
		{nil, []string{"WEIR_COUNTER_MEMORY=18EiB"}, "", `WEIR_COUNTER_MEMORY: "18EiB" is not a size, such as 512MiB or 8GiB`},
		{nil, []string{"WEIR_LOG_LEVEL=trace"}, "", `WEIR_LOG_LEVEL: "trace" is not one of debug, info, warn, error`},

		{nil, nil, "gprc: x", `weir.yaml:1: unknown key "gprc"; did you mean grpc?`},
		{nil, nil, "id: a\ncounter_memory: 1", `weir.yaml:2: unknown key "counter_memory"; did you mean counter-memory?`},
		{nil, nil, "config: x", `weir.yaml:1: unknown key "config"`},
		{nil, nil, "tls: {cert: x}", `weir.yaml:1: unknown key "tls"`},
		{nil, nil, "[a]: x", `weir.yaml:1: unknown key ""`},
		{nil, nil, "id: a\nid: b", `weir.yaml:2: id is given twice, first in line 1`},
		{nil, nil, "id:", `weir.yaml:1: id: has no value; leave the line out for the default`},
		{nil, nil, "id: [a]", `weir.yaml:1: id: is a list, allowed is one value`},
		{nil, nil, "id: {a: b}", `weir.yaml:1: id: is a mapping, allowed is a value`},
		{nil, nil, "etcd: [[a]]", `weir.yaml:1: etcd: an item is a list, allowed is one value`},
		{nil, nil, "etcd:\n- a:1\n- null", `weir.yaml:1: etcd: an item has no value; leave the line out for the default`},
		{nil, nil, "- a", `weir.yaml:1: not a mapping of options, such as grpc: 127.0.0.1:9090`},
		{nil, nil, "hello", `weir.yaml:1: not a mapping of options, such as grpc: 127.0.0.1:9090`},
		{nil, nil, "id: a\n---\nid: b", `weir.yaml:2: a second document begins here, allowed is one`},
		{nil, nil, "id: \"a", `weir.yaml:1:5: not valid YAML: the quote that begins here is not closed`},
		{nil, nil, "id: a\n\tgrpc: b", `weir.yaml:2:1: not valid YAML: a tab cannot stand here; write spaces instead`},
		{nil, nil, "id: *a", `weir.yaml:1:5: not valid YAML: no anchor of this name stands before; a value cannot begin with *; put it in quotes: "*a"`},

		{[]string{"--config=/nonexistent"}, nil, "", `--config: open /nonexistent: no such file or directory`},
		{nil, []string{"WEIR_CONFIG=/nonexistent"}, "", `WEIR_CONFIG: open /nonexistent: no such file or directory`},
	}
	for _, test := range tests {
		_, err := read(t, test.args, test.env, test.file)
		if err == nil || err.Error() != test.want {
			t.Errorf("%v %v %q:\n got %v\nwant %s", test.args, test.env, test.file, err, test.want)
		}
	}
}

func TestOptionsConfigFromEnvironment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte("id: from-file"), 0o600); err != nil {
		t.Fatal(err)
	}
	opts, err := read(t, nil, []string{"WEIR_CONFIG=" + path}, "")
	if err != nil || opts.ID != "from-file" {
		t.Errorf("got %s, %v", opts.ID, err)
	}
	opts, err = read(t, []string{"--config="}, []string{"WEIR_CONFIG=" + path}, "")
	if err != nil || opts.ID == "from-file" {
		t.Errorf("the flag does not win: got %s, %v", opts.ID, err)
	}
}
