package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
)

// Settings of the embedded member.
const (
	memberName = "weir"
	// One member elects itself after 1 to 5 ticks of TickMs; it has no competitor, so a short time-out
	// costs nothing but the ticks.
	tickMs     = 50
	electionMs = 5 * tickMs
	// Watchers may lag this far; older revisions are dropped. A view is some
	// kilobytes and changes at most once a second; rules are seldom more than some
	// dozen kilobytes, and people change them.
	compactAfter = 5 * time.Minute
	quotaBytes   = 512 << 20
	maxWALs      = 2 // of 64 MB each

	// lockWait is how long a lock on the data may be held by a process that is just ending.
	lockWait = 500 * time.Millisecond
)

// member is the embedded etcd with what must end with it.
type member struct {
	lock  *fileutil.LockedFile
	words *lastWords

	etcd *embed.Etcd        // set by start
	cut  context.CancelFunc // ends all streams of clients
}

// start runs etcd and returns when it is ready. When it returns an error
// everything is given back, if need be later: etcd's start cannot be interrupted.
func (m *member) start(ctx context.Context, host, port string, cfg ServerConfig) error {
	streams, cut := context.WithCancel(context.Background())
	m.cut = cut
	started := make(chan error, 1)
	go m.startEtcd(memberConfig(streams, host, port, cfg, m.words), started)
	select {
	case err := <-started:
		if errors.Is(err, errPanic) {
			return startError(cfg, err)
		}
		if err != nil {
			m.release()
			return startError(cfg, err)
		}
	case <-m.words.spoken:
		// The goroutine that said them has ended, and the one above may wait for
		// it for ever. The directory stays claimed: it is not known to be free.
		return startError(cfg, m.words.err())
	case <-ctx.Done():
		go func() {
			switch err := <-started; {
			case err == nil:
				m.close()
			case !errors.Is(err, errPanic):
				m.release()
			}
		}()
		return startError(cfg, notReady(ctx))
	}
	if err := m.awaitReady(ctx); err != nil {
		m.close()
		return startError(cfg, err)
	}
	return nil
}

// startEtcd starts etcd, and says when it has, or why it has not.
func (m *member) startEtcd(cfg *embed.Config, started chan<- error) {
	// etcd panics on some damage of its files, with its half-open parts out of
	// reach; they stay as they are until the process ends.
	defer func() {
		if p := recover(); p != nil {
			started <- errPanic // p says no more, as a rule: a nil pointer
		}
	}()
	etcd, err := embed.StartEtcd(cfg)
	m.etcd = etcd
	started <- err
}

// awaitReady waits until the member leads itself and answers.
func (m *member) awaitReady(ctx context.Context) error {
	select {
	case <-m.etcd.Server.ReadyNotify():
		return nil
	case <-m.words.spoken:
		return m.words.err()
	case err := <-m.etcd.Err():
		return err
	case <-m.etcd.Server.StopNotify():
		return errors.New("it stopped, and gave no reason")
	case <-ctx.Done():
		return notReady(ctx)
	}
}

func notReady(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errors.New("it did not answer before the time for its start was over")
	}
	return ctx.Err()
}

// close ends etcd and then gives the directory back. It must be called once:
// embed panics the second time.
func (m *member) close() {
	// Otherwise etcd may wait 5 s for the watches of its clients to end. It takes
	// no renewals in that time, but still lets leases expire: all nodes would be
	// gone when it comes back.
	m.cut()
	closed := make(chan struct{})
	go func() {
		m.etcd.Close()
		m.release()
		close(closed)
	}()
	timeout := closeTimeout
	select {
	case <-m.words.spoken:
		timeout = deadTimeout
	default:
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
	}
}

func (m *member) release() {
	m.cut()
	m.lock.Close()
}

// memberConfig configures an etcd of one member that serves nothing but
// gRPC, and ends the streams of its clients when streams is done.
func memberConfig(streams context.Context, host, port string, cfg ServerConfig, words *lastWords) *embed.Config {
	client := url.URL{Scheme: "http", Host: net.JoinHostPort(host, port)}
	// No peer connects there; a fixed port would clash with another etcd.
	peer := url.URL{Scheme: "http", Host: "127.0.0.1:0"}

	c := embed.NewConfig()
	c.Name = memberName
	c.Dir = cfg.Dir
	c.ListenClientUrls = []url.URL{client}
	c.AdvertiseClientUrls = []url.URL{client}
	c.ListenPeerUrls = []url.URL{peer}
	c.AdvertisePeerUrls = []url.URL{peer}
	c.InitialCluster = c.InitialClusterFromName(memberName)
	c.TickMs = tickMs
	c.ElectionMs = electionMs
	c.AutoCompactionMode = embed.CompactorModePeriodic
	c.AutoCompactionRetention = compactAfter.String()
	c.QuotaBackendBytes = quotaBytes
	c.MaxWalFiles = maxWALs
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(words.logger(cfg.Logger))
	c.EnableGRPCGateway = false
	// etcd serves its metrics and variables by HTTP on the port of its clients.
	// No request has this name as its host, so all are refused.
	c.HostWhitelist = map[string]struct{}{"HTTP is not served": {}}
	c.GRPCAdditionalServerOptions = []grpc.ServerOption{grpc.ChainStreamInterceptor(cutStreams(streams))}
	return c
}

// cutStreams ends every stream when stop is done.
func cutStreams(stop context.Context) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx, cancel := context.WithCancel(ss.Context())
		defer cancel()
		defer context.AfterFunc(stop, cancel)()
		return handler(srv, stream{ss, ctx})
	}
}

// stream is a ServerStream with another context; gRPC has no other way to set it.
type stream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s stream) Context() context.Context { return s.ctx }

// probeBackend finds out whether another etcd has the data open, and whether they can be read at all. etcd
// itself would wait for ever for the lock, and panic on damaged data.
func probeBackend(dir string) error {
	file := filepath.Join("member", "snap", "db")
	path := filepath.Join(dir, file)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: lockWait})
	if errors.Is(err, berrors.ErrTimeout) {
		return errDirInUse
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, reason(err))
	}
	return db.Close()
}
