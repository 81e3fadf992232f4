package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/access"
)

// optionBound is a row of the table "Options" in docs/reference/bounds.md.
type optionBound struct {
	what, most string
	size       int
	says       string // a part of the error one beyond
	option     string // that the error names; empty where it is about a file
	use        func(t *testing.T, o *Options, n int) error
}

// setting sets an option to what has n of something.
func setting(set func(o *Options, n int)) func(*testing.T, *Options, int) error {
	return func(_ *testing.T, o *Options, n int) error {
		set(o, n)
		return o.Validate()
	}
}

// seconds sets an option to n seconds.
func seconds(of func(o *Options) *time.Duration) func(*testing.T, *Options, int) error {
	return setting(func(o *Options, n int) { *of(o) = time.Duration(n) * time.Second })
}

// numbered returns n texts of that form.
func numbered(form string, n int) (texts []string) {
	for i := range n {
		texts = append(texts, fmt.Sprintf(form, i))
	}
	return texts
}

var optionBounds = []optionBound{
	{"Bytes of `--id`", "128", maxIDBytes, "", "id", setting(func(o *Options, n int) { o.ID = strings.Repeat("x", n) })},
	{"Bytes of `--cluster`", "64", maxClusterBytes, "", "cluster", setting(func(o *Options, n int) { o.Cluster = strings.Repeat("x", n) })},
	{"Endpoints in `--etcd`", "64", 64, "has 65 endpoints, at most 64 are allowed", "etcd", setting(func(o *Options, n int) { o.Etcd = numbered("127.0.0.1:%d", n+1)[1:] })},
	{"Names in `--http-hosts`", "64", 64, "65 names are more than 64", "http-hosts", setting(func(o *Options, n int) { o.HTTPHosts = numbered("h%d.example", n) })},
	{"Bytes of such a name", "253", 253, "is not the name of a host", "http-hosts", setting(func(o *Options, n int) { o.HTTPHosts = []string{strings.Repeat("x", n)} })},
	{"Attributes in `--auth-attribute`", "13", 13, "14 attributes are more than 13", "auth-attribute", setting(func(o *Options, n int) { o.AuthAttribute = numbered("a%d=X", n) })},
	{"Domains in `--domain-weights`", "256", maxDomainWeights, "has 257 entries, at most 256 are allowed", "domain-weights", setting(func(o *Options, n int) { o.DomainWeights = numbered("d%d=2", n) })},
	{"Weight of a domain", "100", maxDomainWeight, "allowed is 0.01 to 100", "domain-weights", setting(func(o *Options, n int) { o.DomainWeights = []string{fmt.Sprintf("d=%d", n)} })},
	{"Entries of `--xds-metadata`", "64", maxXDSPairs, "has 65 entries, at most 64 are allowed", "xds-metadata", setting(func(o *Options, n int) { o.XDSMetadata = numbered("k%d=v", n) })},
	{"Entries of `--xds-headers`", "64", maxXDSPairs, "has 65 entries, at most 64 are allowed", "xds-headers", setting(func(o *Options, n int) { o.XDSHeaders = numbered("k%d:v", n) })},
	{"Percent of `--retry-jitter`", "100", 100, "101", "retry-jitter", setting(func(o *Options, n int) { o.RetryJitter = fmt.Sprintf("%d%%", n) })},
	{"Files of `--decision-log-files`", "1,000", maxDecisionLogFiles, "1001 is not between 1 and 1000", "decision-log-files", setting(func(o *Options, n int) { o.DecisionLogFiles = n })},
	{"Bytes of `--decision-log-size`", "1,099,511,627,776", maxDecisionLogSize, "is not between 1.0MiB and 1.0TiB", "decision-log-size", setting(func(o *Options, n int) { o.DecisionLogSize = Bytes(n) })},
	{"Bytes of `--counter-memory`", "4,398,046,511,104", maxCounterMemory, "is not between 8.0MiB and 4.0TiB", "counter-memory", setting(func(o *Options, n int) { o.CounterMemory = Bytes(n) })},
	{"Seconds of `--auth-max-delay`", "5", 5, "is not between 0s and 5s", "auth-max-delay", seconds(func(o *Options) *time.Duration { return &o.AuthMaxDelay })},
	{"Seconds of `--peer-timeout`", "10", 10, "is not between 1ms and 10s", "peer-timeout", seconds(func(o *Options) *time.Duration { return &o.PeerTimeout })},
	{"Seconds of `--etcd-wait`", "3,600", 3600, "is not between 1s and 1h0m0s", "etcd-wait", seconds(func(o *Options) *time.Duration { return &o.EtcdWait })},
	{"Seconds of `--xds-retry-max`", "3,600", 3600, "and 1h0m0s", "xds-retry-max", seconds(func(o *Options) *time.Duration { return &o.XDSRetryMax })},
	{"Seconds of `--snapshot-every`", "86,400", 86400, "is not between 1s and 24h0m0s", "snapshot-every", seconds(func(o *Options) *time.Duration { return &o.SnapshotEvery })},
	{"Seconds of `--snapshot-min-window`", "31,536,000", 365 * 86400, "is not between 1s and 8760h0m0s", "snapshot-min-window", seconds(func(o *Options) *time.Duration { return &o.SnapshotMinWindow })},
	{"Access tokens in the file of `--tokens`", "1,000", access.MaxTokens, "line 1001: more than 1000 tokens", "", func(t *testing.T, _ *Options, n int) error {
		var file strings.Builder
		for i := range n {
			fmt.Fprintf(&file, "t%d check %s\n", i, access.Hash(fmt.Sprint(i)))
		}
		return useTokens(t, file.String())
	}},
	{"Bytes of that file", "1,048,576", access.MaxTokensBytes, "more than 1048576 bytes", "", func(t *testing.T, _ *Options, n int) error {
		return useTokens(t, strings.Repeat("#", n))
	}},
	{"Bytes of the file of `--etcd-password-file`", "1,024", maxPassword, "has more than 1024 bytes", "", func(t *testing.T, _ *Options, n int) error {
		_, err := readPassword(writeText(t, strings.Repeat("x", n)))
		return err
	}},
}

func writeText(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func useTokens(t *testing.T, text string) error {
	t.Helper()
	_, err := openTokenFile(writeText(t, text), new(access.Tokens), quiet())
	return err
}

// Options have what docs/reference/bounds.md says; with one more, a node does not start.
func TestDocumentedBounds(t *testing.T) {
	doc, err := os.ReadFile("../docs/reference/bounds.md")
	if err != nil {
		t.Fatal(err)
	}
	table := "| Options | At most | One more |\n| --- | --- | --- |\n"
	for _, b := range optionBounds {
		table += fmt.Sprintf("| %s | %s | the node does not start |\n", b.what, b.most)
		if err := b.use(t, validOptions(), b.size); err != nil {
			t.Errorf("%s: %d: %v", b.what, b.size, err)
		}
		err := b.use(t, validOptions(), b.size+1)
		if err == nil || !strings.Contains(err.Error(), b.says) || b.option != "" && !slices.Equal(refused(err), []string{b.option}) {
			t.Errorf("%s: %d: %v, want one error about %q that says %q", b.what, b.size+1, err, b.option, b.says)
		}
		if got := strings.ReplaceAll(b.most, ",", ""); got != fmt.Sprint(b.size) {
			t.Errorf("%s: %s in the table, the test asks for %d", b.what, b.most, b.size)
		}
	}
	if !strings.Contains(string(doc), table) {
		t.Errorf("docs/reference/bounds.md has not this table:\n%s", table)
	}
}

// validOptions have what other options need.
func validOptions() *Options {
	return &Options{ID: "a", XDSServer: "127.0.0.1:18000"}
}

// refused returns the names of the options that an error is about.
func refused(err error) (names []string) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			names = append(names, refused(err)...)
		}
		return names
	}
	if about, ok := errors.AsType[*OptionError](err); ok {
		return []string{about.Name}
	}
	return nil
}
