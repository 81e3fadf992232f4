package xds

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weirlimit/weir/rules"
)

// TypeURL is the type of the resources.
const TypeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// Config says where rules come from. Server, RetryMin, RetryMax, Logger and Metrics must be set.
type Config struct {
	// Server is the address of the xDS server, host:port.
	Server string
	// NodeID is how this program names itself there. All nodes of a cluster have the same.
	NodeID string
	// Metadata is what this program says of itself there.
	Metadata map[string]string
	// Headers are sent when a stream is opened.
	Headers map[string]string
	// TLS returns how to connect, for each connection, so that new files are in force without a restart. Nil means
	// without TLS.
	TLS func() (*tls.Config, error)
	// Dial connects to Server; nil is TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// RetryMin and RetryMax bound the wait before the next attempt to connect. It doubles with each attempt in vain,
	// and a random half of it is left out.
	RetryMin, RetryMax time.Duration
	// Options say what the resources mean.
	Options rules.Options
	// Keep is the file in which the last good rules are kept, and from which a start without the server has its rules. Empty means
	// that none are kept.
	Keep string
	// Now reads the clock, to note when rules were received.
	Now func() time.Time
	// StartEmpty has everything allowed before the server has sent rules. Else nothing is decided before.
	StartEmpty bool
	Logger     *slog.Logger
	Metrics    prometheus.Registerer
}

// Source has the rules of an xDS server while Run runs. It begins without rules, or with those that an earlier run has kept if the
// server is away.
type Source struct {
	*rules.Pushed
	cfg       Config
	connected prometheus.Gauge
	again     chan struct{} // its slot is filled once Reread was called
	received  chan struct{} // closed once rules of the server are in force, of this run or of an earlier one

	refused [sha256.Size]byte // the resources that were refused last, zero after good ones. Owned by Run.
	detail  *rpcstatus.Status // why they were. Owned by Run.
	first   sync.Once         // closes received

	file    *lastGoodFile // nil if nothing is kept
	putting sync.Mutex
	found   *lastGood // guarded by putting; what an earlier run has kept, nil once the server has sent rules or it was used

	mu      sync.Mutex
	problem error     // guarded by mu; why there is no stream, nil while there is one
	keptAt  time.Time // guarded by mu; see KeptAt
}

var (
	errNotYet = errors.New("is not connected yet")
	errReread = errors.New("connects again, as asked")
)

// New returns a Source that has no rules yet.
func New(cfg Config) (*Source, error) {
	pushed, err := rules.NewPushed(cfg.Server, cfg.Options, cfg.StartEmpty, cfg.Logger, cfg.Metrics)
	if err != nil {
		return nil, err
	}
	s := &Source{
		Pushed: pushed, cfg: cfg, again: make(chan struct{}, 1), received: make(chan struct{}), problem: errNotYet,
		connected: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_xds_connected",
			Help: "1 while the stream to the xDS server is open, 0 while the last good rules stay in force without it.",
		}),
	}
	if err := cfg.Metrics.Register(s.connected); err != nil {
		return nil, fmt.Errorf("register the metrics of xDS: %w", err)
	}
	s.openLastGood()
	return s, nil
}

// Received is closed once rules of the server are in force: of this run, or of an earlier one if the server is away.
func (s *Source) Received() <-chan struct{} { return s.received }

// Disconnected returns why there is no stream to the server, or nil while there is one.
func (s *Source) Disconnected() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem
}

// Reread has Run connect again, with the files of TLS as they are now, and so get all resources again. It does not
// block.
func (s *Source) Reread() {
	select {
	case s.again <- struct{}{}:
	default: // it is full already
	}
}

// Run follows the server until ctx ends, and then returns nil. At most one Run may run at a time.
func (s *Source) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	if s.file != nil {
		parts.Go(func() { s.file.run(ctx) })
		parts.Go(func() { s.recallLater(ctx) })
	}
	pause := s.cfg.RetryMin
	for {
		heard, err := s.follow(ctx)
		s.connected.Set(0)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errReread):
			pause = s.cfg.RetryMin
			continue
		case heard:
			pause = s.cfg.RetryMin
		}
		s.lost(err)
		s.recall(err)
		if !s.wait(ctx, pause) {
			return nil
		}
		pause = min(2*pause, s.cfg.RetryMax)
	}
}

// lost notes why there is no stream, and logs it if it is news.
func (s *Source) lost(err error) {
	s.mu.Lock()
	before := s.problem
	s.problem = err
	s.mu.Unlock()
	level := slog.LevelDebug
	if before == nil || before.Error() != err.Error() {
		level = slog.LevelWarn
	}
	s.cfg.Logger.Log(context.Background(), level, "no stream to the xDS server, the last good rules stay", "server", s.cfg.Server, "error", err)
}

// wait returns after a random time between half of pause and all of it, or when Reread was called. It reports false
// if ctx has ended.
func (s *Source) wait(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause/2 + rand.N(pause/2+1))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-s.again:
	case <-timer.C:
	}
	return true
}

// follow opens a stream and obeys it until it ends. It reports whether the server has sent something, and why the
// stream has ended, which is never nil.
func (s *Source) follow(ctx context.Context) (heard bool, err error) {
	conn, err := s.connect()
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }() // all that it does is over
	ctx, cancel := context.WithCancelCause(metadata.NewOutgoingContext(ctx, metadata.New(s.cfg.Headers)))
	defer cancel(nil)
	watching := make(chan struct{})
	defer func() { <-watching }()
	defer cancel(nil)
	go func() {
		defer close(watching)
		select {
		case <-ctx.Done():
		case <-s.again:
			cancel(errReread)
		}
	}()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err == nil {
		heard, err = s.obey(ctx, stream)
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return heard, err
}

// connect prepares a connection, which is made when the stream is opened.
func (s *Source) connect() (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if s.cfg.TLS != nil {
		config, err := s.cfg.TLS()
		if err != nil {
			return nil, err
		}
		creds = credentials.NewTLS(config)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTimeout}),
		grpc.WithDisableServiceConfig(),
	}
	if s.cfg.Dial != nil {
		options = append(options, grpc.WithContextDialer(s.cfg.Dial))
	}
	return grpc.NewClient("passthrough:///"+s.cfg.Server, options...)
}

// obey subscribes, and takes what the server sends until the stream ends.
//
// Each stream begins without a version: a server that was started again counts from the beginning, and would take a
// version of the one before for its own, and send nothing.
func (s *Source) obey(ctx context.Context, stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient) (heard bool, err error) {
	request := &discoveryv3.DiscoveryRequest{Node: s.node(), TypeUrl: TypeURL}
	accepted := "" // the version of what is in force
	for {
		if err := stream.Send(request); err != nil {
			_, err = stream.Recv() // which knows why
			return heard, err
		}
		if !heard {
			s.opened()
		}
		response, err := stream.Recv()
		if err != nil {
			return heard, err
		}
		heard = true
		if response.GetTypeUrl() != TypeURL {
			return heard, fmt.Errorf("the server has sent resources of type %q, and was asked for %s", response.GetTypeUrl(), TypeURL)
		}
		refused := s.apply(ctx, response.GetResources())
		if refused == nil {
			accepted = response.GetVersionInfo()
		}
		request = &discoveryv3.DiscoveryRequest{
			Node: s.node(), TypeUrl: TypeURL, VersionInfo: accepted, ResponseNonce: response.GetNonce(), ErrorDetail: refused,
		}
	}
}

// node is how this program names itself to the server.
func (s *Source) node() *corev3.Node {
	n := &corev3.Node{Id: s.cfg.NodeID, UserAgentName: "weir"}
	if len(s.cfg.Metadata) > 0 {
		n.Metadata = &structpb.Struct{Fields: make(map[string]*structpb.Value)}
		for key, value := range s.cfg.Metadata {
			n.Metadata.Fields[key] = structpb.NewStringValue(value)
		}
	}
	return n
}

// opened notes that there is a stream.
func (s *Source) opened() {
	s.mu.Lock()
	s.problem = nil
	s.mu.Unlock()
	s.connected.Set(1)
	s.cfg.Logger.Info("stream to the xDS server opened", "server", s.cfg.Server, "node", s.cfg.NodeID)
}

// apply puts resources in force, and returns nil, or the reason for which they are refused. Resources that were refused
// just now are refused again after a wait.
func (s *Source) apply(ctx context.Context, resources []*anypb.Any) *rpcstatus.Status {
	content := hash(resources)
	if content == s.refused {
		timer := time.NewTimer(nackPause/2 + rand.N(nackPause/2))
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		return s.detail
	}
	if err := s.use(resources, content); err != nil {
		s.refused, s.detail = content, invalid(err)
		return s.detail
	}
	s.refused = [sha256.Size]byte{}
	return nil
}

// invalid is the detail of a NACK: what is wrong, in the words of the validator.
func invalid(err error) *rpcstatus.Status {
	text := err.Error()
	if len(text) > maxDetail {
		end := maxDetail
		for !utf8.RuneStart(text[end]) {
			end--
		}
		text = text[:end] + "..."
	}
	return &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: text}
}

// hash tells resources apart. Their order does not matter.
func hash(resources []*anypb.Any) [sha256.Size]byte {
	sums := make([][]byte, len(resources))
	for i, r := range resources {
		sum := sha256.Sum256(append([]byte(r.GetTypeUrl()+"\x00"), r.GetValue()...))
		sums[i] = sum[:]
	}
	slices.SortFunc(sums, bytes.Compare)
	return sha256.Sum256(bytes.Join(sums, nil))
}
