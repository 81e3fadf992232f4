package api

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/shard"
)

// envoyStats are the metrics of descriptors, as envoyproxy/ratelimit shows them to
// Prometheus by its default mapping: the counters of one limit have the domain and the
// first two parts of its name as labels.
type envoyStats struct {
	errors       *prometheus.CounterVec
	globalShadow prometheus.Counter
	near         float64

	mu     sync.RWMutex
	byName map[string]*envoyStat // guarded by mu; at most maxEnvoyNames, and one for the others
}

// envoyStat is what became of the hits of one limit. It is only added to.
type envoyStat struct {
	labels []string
	counts [envoyCounts]atomic.Uint64
}

// The counters of an envoyStat.
const (
	totalHits = iota
	overLimit
	nearLimit
	withinLimit
	shadowMode
	totalNegativeHits
	envoyCounts // how many there are
)

// otherNames is the name of the limits beyond maxEnvoyNames.
const otherNames = "others"

var envoyDescs = func() (descs [envoyCounts][2]*prometheus.Desc) {
	for i, c := range [envoyCounts]struct{ name, help string }{
		totalHits:         {"total_hits", "Hits of descriptors"},
		overLimit:         {"over_limit", "Hits of descriptors that were over the limit"},
		nearLimit:         {"near_limit", "Hits of descriptors that were near the limit, and within it"},
		withinLimit:       {"within_limit", "Hits of descriptors that were within the limit"},
		shadowMode:        {"shadow_mode", "Hits of descriptors that were over the limit and let through because of shadow_mode"},
		totalNegativeHits: {"total_negative_hits", "Hits of descriptors that were given back"},
	} {
		for j, labels := range [][]string{{"domain", "key1"}, {"domain", "key1", "key2"}} {
			descs[i][j] = prometheus.NewDesc("ratelimit_service_rate_limit_"+c.name, c.help+", by what the limit is called.", labels, nil)
		}
	}
	return descs
}()

func newEnvoyStats(r prometheus.Registerer, near float64) *envoyStats {
	if near == 0 {
		near = 0.8
	}
	f := promauto.With(r)
	s := &envoyStats{
		errors: f.NewCounterVec(prometheus.CounterOpts{
			Name: "ratelimit_service_should_rate_limit_error",
			Help: "Requests of Envoy that were answered with an error: service_error if they are wrong, unanswered if nobody counted them.",
		}, []string{"err_type"}),
		globalShadow: f.NewCounter(prometheus.CounterOpts{
			Name: "ratelimit_service_global_shadow_mode",
			Help: "Requests of Envoy that were over a limit and let through because the whole service is a shadow.",
		}),
		near:   near,
		byName: make(map[string]*envoyStat),
	}
	r.MustRegister(s)
	return s
}

// failed counts a request that is answered with err, and returns that.
func (s *envoyStats) failed(err error) error {
	kind := "service_error"
	if status.Code(err) == codes.Unavailable {
		kind = "unanswered"
	}
	s.errors.WithLabelValues(kind).Inc()
	return err
}

// of returns the counters of a limit of that name.
func (s *envoyStats) of(name []byte) *envoyStat {
	s.mu.RLock()
	stat := s.byName[string(name)]
	s.mu.RUnlock()
	if stat != nil {
		return stat
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := string(name)
	if len(s.byName) >= maxEnvoyNames {
		key = otherNames
	}
	if s.byName[key] == nil {
		s.byName[key] = &envoyStat{labels: envoyLabels(key)}
	}
	return s.byName[key]
}

// envoyLabels cuts a name into the domain and two parts, as the mapping of the reference
// does, which drops the others.
func envoyLabels(name string) []string {
	parts := strings.SplitN(strings.ToValidUTF8(name, "\uFFFD"), ".", 4)
	for len(parts) < 2 {
		parts = append(parts, "")
	}
	return parts[:min(len(parts), 3)]
}

// count counts the hits of a limit that was asked.
func (s *envoyStats) count(name []byte, a *asked, t *shard.Take) {
	c := s.of(name)
	hits := uint64(a.hits)
	if a.negative {
		c.counts[totalNegativeHits].Add(hits)
		return
	}
	c.counts[totalHits].Add(hits)
	if !answered(t) {
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
func (s *envoyStats) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s *envoyStats) Collect(ch chan<- prometheus.Metric) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	type series [3]string
	sums := make(map[series]*[envoyCounts]uint64)
	for _, stat := range s.byName {
		var key series
		copy(key[:], stat.labels)
		if sums[key] == nil {
			sums[key] = new([envoyCounts]uint64)
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
			ch <- prometheus.MustNewConstMetric(envoyDescs[i][len(labels)-2], prometheus.CounterValue, float64(n), labels...)
		}
	}
}
