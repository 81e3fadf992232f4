package envoy

import (
	"math"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/api/internal/check"
	"github.com/weirlimit/weir/shard"
)

// stats are the metrics of descriptors, as envoyproxy/ratelimit shows them to
// Prometheus by its default mapping: the counters of one limit have the domain and the
// first two parts of its name as labels.
type stats struct {
	errors       *prometheus.CounterVec
	excesses     *prometheus.CounterVec
	globalShadow prometheus.Counter
	near         float64

	mu     sync.RWMutex
	byName map[string]*limitStat // guarded by mu; at most maxNames, and one for the others
}

// limitStat is what became of the hits of one limit. It is only added to.
type limitStat struct {
	labels []string
	counts [statCounts]atomic.Uint64
}

// The counters of a limitStat.
const (
	totalHits = iota
	overLimit
	nearLimit
	withinLimit
	shadowMode
	totalNegativeHits
	statCounts // how many there are
)

// otherNames is the name of the limits beyond maxNames.
const otherNames = "others"

var statDescs = func() (descs [statCounts][2]*prometheus.Desc) {
	for i, c := range [statCounts]struct{ name, help string }{
		totalHits:         {"total_hits", "Hits of descriptors"},
		overLimit:         {"over_limit", "Hits of descriptors that were over the limit"},
		nearLimit:         {"near_limit", "Hits of descriptors that were near the limit and within it"},
		withinLimit:       {"within_limit", "Hits of descriptors that were within the limit"},
		shadowMode:        {"shadow_mode", "Hits of descriptors that were over the limit and allowed because of shadow_mode"},
		totalNegativeHits: {"total_negative_hits", "Hits of descriptors that were given back"},
	} {
		for j, labels := range [][]string{{"domain", "key1"}, {"domain", "key1", "key2"}} {
			descs[i][j] = prometheus.NewDesc("ratelimit_service_rate_limit_"+c.name, c.help+", by the limit's name.", labels, nil)
		}
	}
	return descs
}()

// Types of requests that get an error.
const (
	invalidRequest   = "service_error"
	undecidedRequest = "undecided"
)

func newStats(r prometheus.Registerer, near float64) *stats {
	if near == 0 {
		near = 0.8
	}
	f := promauto.With(r)
	s := &stats{
		errors: f.NewCounterVec(prometheus.CounterOpts{
			Name: "ratelimit_service_should_rate_limit_error",
			Help: "Requests of Envoy that got an error, by type: service_error (invalid request), undecided (no node decided).",
		}, []string{"err_type"}),
		excesses: f.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_envoy_excess_total",
			Help: "Requests of Envoy with something beyond the bounds that were answered all the same, by kind: value (shortened), key (given twice; the first counts), hits, cost, limit (that of the file counts), entries (the first ones count), descriptors and limits. With hits and cost the request is counted as over its limit. With descriptors and limits it is over its limit, and nothing of it counts.",
		}, []string{"kind"}),
		globalShadow: f.NewCounter(prometheus.CounterOpts{
			Name: "ratelimit_service_global_shadow_mode",
			Help: "Requests of Envoy that were over a limit and allowed because of --rls-shadow.",
		}),
		near:   near,
		byName: make(map[string]*limitStat),
	}
	for _, kind := range []string{"value", "key", "hits", "cost", "limit", "entries", "descriptors", "limits"} {
		s.excesses.WithLabelValues(kind) // shown from the beginning
	}
	for _, kind := range []string{invalidRequest, undecidedRequest} {
		s.errors.WithLabelValues(kind)
	}
	r.MustRegister(s)
	return s
}

// failed counts a request that is answered with err, and returns that.
func (s *stats) failed(err error) error {
	kind := invalidRequest
	if status.Code(err) == codes.Unavailable {
		kind = undecidedRequest
	}
	s.errors.WithLabelValues(kind).Inc()
	return err
}

// excess counts what is beyond the bounds of requests of Envoy.
func (s *stats) excess(what string) { s.excesses.WithLabelValues(what).Inc() }

// of returns the counters of a limit of that name, which may have what clients choose.
func (s *stats) of(name []byte) *limitStat {
	name = name[:min(len(name), maxNameBytes)]
	s.mu.RLock()
	stat := s.byName[string(name)]
	s.mu.RUnlock()
	if stat != nil {
		return stat
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := string(name)
	if len(s.byName) >= maxNames {
		key = otherNames
	}
	if s.byName[key] == nil {
		s.byName[key] = &limitStat{labels: labelsOf(key)}
	}
	return s.byName[key]
}

// What names of metrics in the reference have an underscore for: colons and bars, and the dots
// of what looks like an IPv4 address, 10.0.0.1, wherever that stands.
var (
	underscores = strings.NewReplacer(":", "_", "|", "_")
	ipv4Address = regexp.MustCompile(`[0-9]{1,3}(\.[0-9]{1,3}){3}`)
)

// labelsOf cuts a name into the domain and two parts, as the mapping of the reference
// does, which drops the others.
func labelsOf(name string) []string {
	name = underscores.Replace(strings.ToValidUTF8(name, "\uFFFD"))
	name = ipv4Address.ReplaceAllStringFunc(name, func(address string) string { return strings.ReplaceAll(address, ".", "_") })
	parts := strings.SplitN(name, ".", 4)
	for len(parts) < 2 {
		parts = append(parts, "")
	}
	return parts[:min(len(parts), 3)]
}

// count counts the hits of a limit that was asked.
func (s *stats) count(name []byte, a *asked, t *shard.Take) {
	c := s.of(name)
	hits := uint64(a.hits)
	if a.negative {
		c.counts[totalNegativeHits].Add(hits)
		return
	}
	c.counts[totalHits].Add(hits)
	if !check.Answered(t) {
		return
	}
	limit, used := int64(a.requests), a.used
	near := int64(math.Floor(float64(limit) * s.near))
	before := used - a.hits
	switch {
	case t.Decision.Allowed:
		c.counts[withinLimit].Add(hits)
		if used > near {
			c.counts[nearLimit].Add(uint64(used - max(near, before)))
		}
		return
	case before < limit && used > limit: // counted although it is over: some hits were not
		hits = uint64(used - limit)
		c.counts[nearLimit].Add(uint64(limit - max(near, before)))
	}
	c.counts[overLimit].Add(hits)
	if a.shadow() {
		c.counts[shadowMode].Add(hits)
	}
}

// Describe implements prometheus.Collector. What it collects is unchecked: names may have
// one label or two.
func (s *stats) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s *stats) Collect(ch chan<- prometheus.Metric) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	type series [3]string
	sums := make(map[series]*[statCounts]uint64)
	for _, stat := range s.byName {
		var key series
		copy(key[:], stat.labels)
		if sums[key] == nil {
			sums[key] = new([statCounts]uint64)
		}
		for i := range sums[key] {
			sums[key][i] += stat.counts[i].Load()
		}
	}
	for key, counts := range sums {
		labels := key[:2]
		if key[2] != "" {
			labels = key[:]
		}
		for i, n := range counts {
			ch <- prometheus.MustNewConstMetric(statDescs[i][len(labels)-2], prometheus.CounterValue, float64(n), labels...)
		}
	}
}
