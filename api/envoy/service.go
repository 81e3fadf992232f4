package envoy

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/api/internal/check"
	"github.com/weirlimit/weir/api/internal/wire"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/shard"
)

// Service implements Envoy's rate limit service. In a domain of descriptors, those
// of a request are matched as envoyproxy/ratelimit does it; in one of rules, the entries
// of a descriptor are its attributes. One call is one group, so that a denied descriptor
// lets no other be counted.
//
// It is safe for concurrent use; make it with New.
type Service struct {
	rlsv3.UnimplementedRateLimitServiceServer
	config   Config
	checks   *check.Checker
	overload Overload
	stats    *stats
	duration prometheus.Observer
	works    sync.Pool // of *work
	log      *slog.Logger
	looked   sync.Once // a look was warned about
}

// Overload says which calls there is time for. Those of gRPC have begun before.
type Overload interface {
	// Admit reports whether there is time for a call, whose context is that of the handler.
	Admit(ctx context.Context, set *rules.Set, domain string, descriptors int) bool
	// Ended is called when a call of gRPC was answered.
	Ended(ctx context.Context)
	// Watched has the requests over HTTP that next answers begin and end as calls.
	Watched(next http.Handler) http.Handler
}

// New returns a service that decides by checks. A call that is not accepted is over its limit: there is no time
// for it. The logger is told once of requests that cannot work as they are meant.
func New(checks *check.Checker, config Config, overload Overload, log *slog.Logger) *Service {
	return &Service{
		config:   config,
		checks:   checks,
		overload: overload,
		stats:    newStats(checks.Metrics, config.NearLimit),
		duration: checks.Duration("envoy"),
		works:    sync.Pool{New: func() any { return new(work) }},
		log:      log,
	}
}

// Register registers the service with a gRPC server, which must have been made with wire.ServerOptions
// of MaxMessage bytes.
func (s *Service) Register(server grpc.ServiceRegistrar) {
	service := rlsv3.RateLimitService_ServiceDesc
	wire.ReplaceHandler(&service, "ShouldRateLimit", func(ctx context.Context, request wire.Part) (wire.Encoded, error) {
		defer s.overload.Ended(ctx)
		return s.check(ctx, request)
	})
	server.RegisterService(&service, s)
}

// work holds what it takes to answer a request; it is used again for others.
type work struct {
	check.Work
	list    wire.List // of descriptors that are still to be decoded
	entries wire.List // likewise, of one descriptor
	out     []byte

	descriptors *rules.Descriptors // of the domain, nil if it has none
	strict      bool               // the domain has rules, which have bounds of their own
	verdicts    []check.Verdict    // by descriptor, of those that were judged
	raw         []shard.Take       // as the counters answered, for the decision log
	returned    bool               // what was counted is given back
	tooMuch     bool               // it asks for more than one request may: all of it is over its limit
	hits        uint32             // of the request
	asked       []asked            // by descriptor
	statuses    []descriptorStatus // likewise
	replaced    map[string]bool    // names of limits that do not apply
	names       []byte             // of asked, one after the other
}

func (s *Service) newWork(ctx context.Context) *work {
	w := s.works.Get().(*work)
	w.Decoder = (*decodedAgain)(w)
	s.checks.Begin(ctx, &w.Work)
	w.list.Reset()
	clear(w.asked) // their entries are the last request's
	clear(w.replaced)
	w.descriptors, w.strict, w.tooMuch, w.hits, w.returned = nil, false, false, 0, false
	w.asked, w.statuses, w.verdicts, w.names = w.asked[:0], w.statuses[:0], w.verdicts[:0], w.names[:0]
	return w
}

// decodedAgain is a work that decodes for the lists of keys.
type decodedAgain work

// Again implements check.ItemDecoder. The descriptor was decoded once, so that there is no error.
func (w *decodedAgain) Again(i int) rules.Request {
	var entries wire.List
	request := rules.Request{Domain: w.Request.Domain}
	if i >= len(w.list.Parts) {
		return request
	}
	if _, err := decodeDescriptor(w.list.Parts[i], &entries); err != nil {
		return request
	}
	for _, e := range entries.Parts {
		if key, value, err := decodeEntry(e); err == nil {
			request.Attributes = append(request.Attributes, rules.Attribute{Key: key, Value: value})
		}
	}
	return request
}

// ShouldRateLimit implements rlsv3.RateLimitServiceServer.
func (s *Service) ShouldRateLimit(ctx context.Context, req *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	return wire.Decoded(ctx, s.check, req, new(rlsv3.RateLimitResponse))
}

// check answers a RateLimitRequest of Envoy.
func (s *Service) check(ctx context.Context, request wire.Part) (wire.Encoded, error) {
	start := time.Now()
	w := s.newWork(ctx)
	defer s.works.Put(w)
	w.Start = start
	ctx = s.checks.StartSpan(ctx, &w.Work, "envoy")
	defer w.EndSpan()
	if err := s.add(w, request); err != nil {
		return wire.Encoded{}, s.stats.failed(s.checks.Failed("envoy", err))
	}
	r, err := s.decide(ctx, w)
	if err != nil {
		return wire.Encoded{}, s.stats.failed(s.checks.Failed("envoy", err))
	}
	w.out = s.appendResponse(w.out[:0], w, r)
	w.Observe(s.duration)
	return wire.CopyEncoded(w.out), nil
}

// decide decides what add has added. The error is errUndecided.
func (s *Service) decide(ctx context.Context, w *work) (result, error) {
	if w.tooMuch {
		clear(w.asked)
		w.asked = w.asked[:0]
		r := result{over: !s.config.Shadow, told: -1}
		if s.checks.Decisions != nil {
			call := s.callOf(!r.over)
			call.Source = "excess"
			s.checks.LogCall(ctx, &w.Work, call)
		}
		return r, nil
	}
	s.send(ctx, w)
	if s.checks.Decisions != nil { // else what is told is all that counts
		w.raw = append(w.raw[:0], w.Takes...)
	}
	s.normalize(w)
	s.checks.CountLimits(&w.Work)
	r, err := s.judge(ctx, w)
	if len(w.verdicts) > 0 && err == nil {
		s.checks.TellSpan(&w.Work, !r.over, w.verdicts[0])
	}
	if s.checks.Decisions != nil {
		s.record(ctx, w, r, err)
	}
	return r, err
}

// record has the decision log tell of a call. An error is errUndecided.
func (s *Service) record(ctx context.Context, w *work, r result, err error) {
	call := s.callOf(!r.over && err == nil)
	call.Takes, call.Returned, call.Limits = w.raw, w.returned, w.ownLimits()
	if err != nil {
		call.Source = "undecided"
	}
	for i := range w.asked {
		v := w.Judge(i)
		if i < len(w.verdicts) {
			v = w.verdicts[i]
		}
		call.Verdicts = append(call.Verdicts, v)
	}
	s.checks.LogCall(ctx, &w.Work, call)
}

// callOf returns what the decision log tells of every call.
func (s *Service) callOf(allowed bool) check.Call {
	return check.Call{API: "envoy", Allowed: allowed, CountDenied: s.config.CountDenied, Shadow: s.config.Shadow, Quota: s.config.Quota}
}

// ownLimits returns by take the tokens of limits that the call has brought with it, nil if there are none.
func (w *work) ownLimits() (tokens []int64) {
	for i := range w.asked {
		a := &w.asked[i]
		if a.kind != byDescriptor || a.rule != nil {
			continue
		}
		if tokens == nil {
			tokens = make([]int64, len(w.Takes))
		}
		tokens[w.Items[i].End-1] = int64(a.requests)
	}
	return tokens
}

// send asks for what w has added, if there is time for it. Otherwise all takes are Overloaded.
func (s *Service) send(ctx context.Context, w *work) {
	if s.overload.Admit(ctx, w.Set, w.Request.Domain, w.list.N) {
		s.checks.Send(ctx, &w.Work)
		return
	}
	for i := range w.Takes {
		w.Takes[i].Source = shard.Overloaded
	}
}

// add makes a group of the descriptors of a RateLimitRequest.
//
// Clients of an Envoy choose the values and much else, and Envoy by default lets pass what
// is answered with an error. So there is an error only for what no client can choose.
func (s *Service) add(w *work, request wire.Part) (err error) {
	w.DenyInvalidCosts = true
	if w.Request.Domain, w.hits, err = decodeRequest(request, &w.list); err != nil {
		return err
	}
	switch {
	case w.Request.Domain == "":
		return wire.Invalid("domain", "must not be empty")
	case w.list.N == 0:
		return wire.Invalid("descriptors", "must not be empty")
	case w.list.N > maxDescriptors:
		s.stats.excess("descriptors")
		w.tooMuch = true
		return nil
	}
	if err := w.MayAsk(); err != nil {
		return err
	}
	w.descriptors = w.Set.Descriptors(w.Request.Domain)
	w.strict = w.descriptors == nil && w.Set.HasDomain(w.Request.Domain)
	for i, p := range w.list.Parts {
		d, err := s.addDescriptor(w, p)
		if err != nil {
			return wire.Under(fmt.Sprintf("descriptors[%d]", i), err)
		}
		s.match(w, d)
		if len(w.Takes) > maxLimits {
			s.stats.excess("limits")
			w.tooMuch = true
			return nil
		}
	}
	s.takeAsked(w)
	w.AddGroup(false)
	return nil
}

// addDescriptor makes the entries of a RateLimitDescriptor the attributes of w.Request,
// and returns the rest of it, with what is more than a node looks at cut to that.
func (s *Service) addDescriptor(w *work, p wire.Part) (descriptor, error) {
	d, err := decodeDescriptor(p, &w.entries)
	if err != nil {
		return d, err
	}
	w.Request.Attributes = w.Request.Attributes[:0]
	for i, e := range w.entries.Parts {
		if err := s.addEntry(w, e); err != nil {
			return d, wire.Under(fmt.Sprintf("entries[%d]", i), err)
		}
	}
	if d.hasLimit && !d.validOverride() {
		s.stats.excess("limit")
		d.hasLimit = false
	}
	if w.entries.N > check.MaxAttributes {
		s.stats.excess("entries")
		d.unmatched = w.descriptors != nil && !d.hasLimit
	}
	if !d.hasHits {
		d.hits = max(1, uint64(w.hits))
	}
	if d.hits > algorithms.MaxCost {
		s.stats.excess("hits")
		d.hits, d.tooMany = algorithms.MaxCost, !d.negative
	}
	return d, nil
}

// addEntry makes an entry of a descriptor an attribute of w.Request. Rules have bounds for
// attributes: values are made to fit them, and of entries with one key the first is taken.
func (s *Service) addEntry(w *work, p wire.Part) error {
	key, value, err := decodeEntry(p)
	if err != nil {
		return err
	}
	if w.strict {
		if slices.ContainsFunc(w.Request.Attributes, func(a rules.Attribute) bool { return a.Key == key }) {
			s.stats.excess("key")
			return nil
		}
		if len(value) > check.MaxValue {
			s.stats.excess("value")
			value = s.shorten(value)
		}
		value = strings.ToValidUTF8(value, "\uFFFD")
	}
	w.Request.Attributes = append(w.Request.Attributes, rules.Attribute{Key: key, Value: value})
	return nil
}

// shorten returns the beginning and the end of a long value, which conditions match as they
// would match the whole, with a hash of the whole between them, so that others have other counters.
func (s *Service) shorten(value string) string {
	key := s.checks.Hasher.Key([]byte(value))
	return fmt.Sprintf("%s...%016x%016x...%s", value[:check.MaxValue], key.Hi, key.Lo, value[len(value)-check.MaxValue:])
}
