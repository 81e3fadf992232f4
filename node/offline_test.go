package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/cluster/etcd"
	"github.com/weirlimit/weir/cluster/view"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// quietAddresses counts the addresses that quietAddress has returned.
var quietAddresses atomic.Int32

// quietAddress returns a free port of an IP address on which nothing else listens, so that a port which is given up there stays free until
// it is used again. On 127.0.0.1 it may become that of any socket of this or of another process.
func quietAddress() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1:0"
	}
	return fmt.Sprintf("127.78.%d.%d:0", os.Getpid()%256, quietAddresses.Add(1)%254+1)
}

// etcdAt runs an etcd at an address until stop, in a directory.
func etcdAt(t *testing.T, address, dir string) (s *etcd.Server) {
	t.Helper()
	s, err := etcd.StartServer(t.Context(), etcd.ServerConfig{Listen: address, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

const oneAYear = "domain: default\nrules: [{id: r, per: [user], limits: [{limit: 1, window: 365d}]}]\n"

// check asks a node for one of the one that a user has.
func check(t *testing.T, info Info, user string) *weirv1.RateLimitResponse {
	t.Helper()
	resp, err := weirv1.NewRateLimiterClient(dial(t, info)).CheckRateLimit(t.Context(), &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: user})
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func healthOf(t *testing.T, info Info) *weirv1.GetHealthStatusResponse {
	t.Helper()
	resp, err := weirv1.NewRateLimiterHealthClient(dial(t, info)).GetHealthStatus(t.Context(), &weirv1.GetHealthStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// stopped stops a node and waits until it has ended.
func stopped(t *testing.T, stop func(), ended <-chan error) {
	t.Helper()
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// awaitHealth asks a node until it is well.
func awaitHealth(t *testing.T, info Info) *weirv1.GetHealthStatusResponse {
	t.Helper()
	late := time.After(time.Minute)
	again := time.NewTicker(lookEvery)
	defer again.Stop()
	for {
		h := healthOf(t, info)
		if !h.GetDegraded() {
			return h
		}
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("%q", h.GetReasons())
		}
	}
}

// A node that is alone starts without etcd: it decides itself, by the rules that it had, but not as the owner, since only etcd could
// say that no other node is. It keeps what it has counted when etcd is back.
func TestStartWithoutEtcd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := etcdAt(t, quietAddress(), dir)
	opts := testOptions(t)
	opts.Etcd = []string{server.Endpoint()}

	first, stop, ended := start(t, opts)
	rules := weirv1.NewRateLimiterConfigClient(dial(t, first))
	if _, err := rules.ApplyRules(t.Context(), &weirv1.ApplyRulesRequest{Rules: oneAYear}); err != nil {
		t.Fatal(err)
	}
	stopped(t, stop, ended)
	server.Close()

	info, stop, ended := start(t, opts)
	for _, want := range []bool{true, false} {
		if got := check(t, info, "alice"); got.GetAllowed() != want || got.GetSource() != weirv1.Source_SOURCE_PROVISIONAL {
			t.Errorf("without etcd: %v, want a provisional %t", got, want)
		}
	}
	h := healthOf(t, info)
	if reasons := strings.Join(h.GetReasons(), "\n"); !h.GetReady() || !strings.Contains(reasons, "without etcd") || !strings.Contains(reasons, "etcd does not answer") {
		t.Errorf("ready %t, reasons %q", h.GetReady(), h.GetReasons())
	}
	etcdAt(t, server.Endpoint(), dir)
	if h := awaitHealth(t, info); h.GetIncarnation() != 2 || !h.GetReady() {
		t.Errorf("with etcd again: %v", h)
	}
	if got := check(t, info, "alice"); got.GetAllowed() {
		t.Errorf("with etcd again, alice has one more: %v", got)
	}
	if _, err := weirv1.NewRateLimiterConfigClient(dial(t, info)).ApplyRules(t.Context(), &weirv1.ApplyRulesRequest{Rules: strings.ReplaceAll(oneAYear, "limit: 1", "limit: 2")}); err != nil {
		t.Error(err)
	}
	if got := check(t, info, "alice"); !got.GetAllowed() {
		t.Errorf("of two, alice has one left: %v", got)
	}
	stopped(t, stop, ended)
}

// A life that begins without etcd is later than the one before, and earlier than the next that etcd counts.
func TestIncarnationWithoutEtcd(t *testing.T) {
	t.Parallel()
	server := etcdAt(t, quietAddress(), t.TempDir())
	opts := testOptions(t)
	opts.Etcd = []string{server.Endpoint()}
	_, stop, ended := start(t, opts)
	stopped(t, stop, ended)
	server.Close()
	n, err := build(t.Context(), Network{}, opts, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	t.Cleanup(func() { n.owners.Run(t.Context()) }) // which leaves the members of its view: the context has ended by then
	former, next := view.Life{ID: opts.ID, Incarnation: 1}, view.Life{ID: opts.ID, Incarnation: 2}
	if l := (view.Life{ID: opts.ID, Incarnation: n.greeter.Self().Incarnation}); !former.Before(l) || !l.Before(next) {
		t.Errorf("%v is not between %v and %v", l, former, next)
	}
}

// Without etcd there is no start of a node that has kept nothing.
func TestNoStartWithoutEtcdAndState(t *testing.T) {
	t.Parallel()
	opts := testOptions(t)
	opts.Etcd = []string{freed(t)}
	if _, err := build(t.Context(), Network{}, opts, quiet()); err == nil || !strings.Contains(err.Error(), "no answer in 5s") {
		t.Errorf("%v", err)
	}
}

// What was kept of one cluster is not for another.
func TestStateOfAnotherCluster(t *testing.T) {
	t.Parallel()
	opts := testOptions(t)
	server := etcdAt(t, quietAddress(), t.TempDir())
	opts.Etcd = []string{server.Endpoint()}
	_, stop, ended := start(t, opts)
	stopped(t, stop, ended)
	server.Close()

	dir := t.TempDir()
	other := etcdAt(t, server.Endpoint(), dir)
	stranger := testOptions(t)
	stranger.ID, stranger.Etcd = "b", opts.Etcd
	_, stop, ended = start(t, stranger)
	stopped(t, stop, ended)
	const want = "etcd has another cluster of this name"
	if _, err := build(t.Context(), Network{}, opts, quiet()); !errors.Is(err, etcd.ErrOtherCluster) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), opts.DataDir) {
		t.Errorf("%v", err)
	}
	other.Close()
	_, _, ended = start(t, opts)
	etcdAt(t, server.Endpoint(), dir)
	if err := <-ended; !errors.Is(err, etcd.ErrOtherCluster) {
		t.Errorf("started without etcd: %v", err)
	}
}

// A node started without etcd ends when it finds that another node has its id.
func TestTakenIDWhileEtcdIsDown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := etcdAt(t, quietAddress(), dir)
	opts := testOptions(t)
	opts.Etcd = []string{server.Endpoint()}
	_, stop, ended := start(t, opts)
	stopped(t, stop, ended)
	elsewhere := testOptions(t) // the same id
	elsewhere.Etcd = opts.Etcd
	other, _, _ := start(t, elsewhere)
	server.Close()
	_, _, ended = start(t, opts)
	etcdAt(t, server.Endpoint(), dir)
	if err := <-ended; !errors.Is(err, errTaken) || !strings.Contains(err.Error(), other.GRPC) {
		t.Errorf("%v, want that the id is taken by %s", err, other.GRPC)
	}
}

// A data directory is one node's; one that cannot be used is told, and does no harm.
func TestDataDirectory(t *testing.T) {
	t.Parallel()
	opts := testOptions(t)
	opts.Etcd = []string{etcdAt(t, quietAddress(), t.TempDir()).Endpoint()}
	_, stop, ended := start(t, opts)
	if _, err := build(t.Context(), Network{}, opts, quiet()); err == nil || err.Error() != "data directory "+opts.DataDir+": in use by another process; stop the node that runs there, or name another directory" {
		t.Errorf("%v", err)
	}
	stopped(t, stop, ended)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	opts.DataDir = filepath.Join(file, "dir")
	info, stop, ended := start(t, opts)
	if h := healthOf(t, info); !h.GetReady() || !strings.Contains(strings.Join(h.GetReasons(), "\n"), "its state cannot be written to disk: "+opts.DataDir) {
		t.Errorf("%v", h)
	}
	stopped(t, stop, ended)
}
