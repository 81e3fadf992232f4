package backtest

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
)

// SuggestConfig says for which keys limits are wanted, and how tight they may be.
type SuggestConfig struct {
	// Config is about the log. Its Rules say which requests are counted together, by their conditions and keys; their
	// limits do not matter, except that rules without one, and with a limit of 0, stay as they are. Against is not used.
	Config
	// Per are sets of attributes, a rule for each, in place of Rules. Without both, it is user and ip, as far as
	// attributes have these names.
	Per [][]string
	// Windows are those of the limits, at most 4: a limit for each in every rule. One minute if there is none.
	Windows []time.Duration
	// Touch is the share of the well-behaved keys of a rule that a suggestion may touch, in percent, 0 to 50.
	Touch float64
	// Headroom is added to what keys of the log need, in percent, 0 to 1000.
	Headroom float64
	// Algorithm is that of all limits: SlidingWindow or TokenBucket, or 0 for the tighter one of each rule.
	Algorithm algorithms.Algorithm
	// MaxKeys bounds the keys that are measured at once, over all rules; 0 is DefaultKeys. Of more, a sample is.
	MaxKeys int

	secret *[ring.SecretSize]byte // of the sample; nil is a random one
}

// Bounds of a suggestion.
const (
	DefaultKeys = 1 << 16 // of SuggestConfig.MaxKeys, about 60 MB for one window and 120 MB for four
	LeastKeys   = 1000
	MostKeys    = 10_000_000

	mostWindows     = 4
	mostTouch       = 50   // percent
	mostHeadroom    = 1000 // percent
	mostRules       = 1000 // that limits are wanted for
	mostDomains     = 8    // of a log that are named
	mostDomainBytes = 128  // bytes of a name
)

// Suggester finds limits for the traffic of logs. It is not safe for concurrent use; make it with NewSuggester.
type Suggester struct {
	config   SuggestConfig
	run      *Run
	set      *rules.Set
	own      bool // the rules are made of Per
	hasher   ring.Hasher
	measures []measure
	rules    []*population // by rank; nil for rules that stay as they are
	kept     int           // keys of all rules
	agents   agents
	checks   int64 // of a decision log that count, and how many of them are allowed
	allowed  int64
	domains  []string // of these checks, at most mostDomains

	// Used again for each line:

	request rules.Request
	matches []rules.Match
	names   namer
}

// NewSuggester returns a Suggester that has read nothing. The error names a field that is out of bounds.
func NewSuggester(c SuggestConfig) (*Suggester, error) {
	c.MaxKeys, c.Domain = cmp.Or(c.MaxKeys, DefaultKeys), cmp.Or(c.Domain, "default")
	if len(c.Windows) == 0 {
		c.Windows = []time.Duration{time.Minute}
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	if err := suggestable(c.Rules); err != nil {
		return nil, err
	}
	s := &Suggester{config: c, set: c.Rules, own: c.Rules == nil, measures: measuresOf(c.Windows)}
	c.Config.Rules, c.Against = new(rules.Set), nil // nothing is decided
	var err error
	if s.run, err = New(c.Config); err != nil {
		return nil, err
	}
	if s.own {
		if s.set, err = s.rulesPer(); err != nil {
			return nil, err
		}
	}
	if err := s.prepare(); err != nil {
		return nil, err
	}
	if c.secret == nil {
		c.secret = new([ring.SecretSize]byte)
		if _, err := rand.Read(c.secret[:]); err != nil {
			return nil, err
		}
	}
	s.hasher = ring.NewHasher(*c.secret)
	s.run.observers = append(s.run.observers, s.observe)
	return s, nil
}

// suggestable refuses rules that no limits are suggested for. nil is fine.
func suggestable(set *rules.Set) error {
	if set == nil {
		return nil
	}
	for rule := range set.Rules() {
		if rule.Descriptor != nil {
			return fmt.Errorf("rules: domain %q has descriptors of Envoy, and limits are suggested for rules only", rule.Domain)
		}
	}
	return nil
}

func (c *SuggestConfig) validate() error {
	switch {
	case c.Rules != nil && len(c.Per) > 0:
		return errors.New("per: rules say themselves which attributes make a key")
	case !(c.Touch >= 0 && c.Touch <= mostTouch): // also if it is no number
		return fmt.Errorf("touch: %v is not between 0 and %d percent", c.Touch, mostTouch)
	case !(c.Headroom >= 0 && c.Headroom <= mostHeadroom):
		return fmt.Errorf("headroom: %v is not between 0 and %d percent", c.Headroom, mostHeadroom)
	case c.Algorithm != 0 && c.Algorithm != algorithms.SlidingWindow && c.Algorithm != algorithms.TokenBucket:
		return fmt.Errorf("algorithm: %v is not one of %v, %v", c.Algorithm, algorithms.SlidingWindow, algorithms.TokenBucket)
	case c.MaxKeys < LeastKeys || c.MaxKeys > MostKeys:
		return fmt.Errorf("keys: %d is not between %d and %d", c.MaxKeys, LeastKeys, MostKeys)
	case len(c.Windows) > mostWindows:
		return fmt.Errorf("windows: %d are more than %d", len(c.Windows), mostWindows)
	}
	for i, w := range c.Windows {
		if w < algorithms.MinWindow || w > algorithms.MaxWindow {
			return fmt.Errorf("window: %v is not between %v and %v", w, algorithms.MinWindow, algorithms.MaxWindow)
		}
		if slices.Contains(c.Windows[:i], w) {
			return fmt.Errorf("window: %v stands there twice", w)
		}
	}
	return nil
}

// rulesPer makes a rule of each set of attributes. Its limit stands for one that is to come.
func (s *Suggester) rulesPer() (*rules.Set, error) {
	per := s.config.Per
	if len(per) == 0 {
		for _, name := range []string{"user", "ip"} {
			if s.config.Format == Decisions || slices.ContainsFunc(s.run.maps, func(m Mapping) bool { return m.Attribute == name }) {
				per = append(per, []string{name})
			}
		}
	}
	doc := rules.Document{Domain: s.config.Domain}
	for _, set := range per {
		for _, name := range set {
			if s.config.Format != Decisions && !slices.ContainsFunc(s.run.maps, func(m Mapping) bool { return m.Attribute == name }) {
				return nil, fmt.Errorf("per: there is no attribute %q; map a field to it", name)
			}
		}
		doc.Rules = append(doc.Rules, rules.Spec{
			ID: "per-" + strings.Join(set, "-"), Per: [][]string{set}, Limits: []rules.LimitSpec{{Limit: 1, Window: "1m"}},
		})
	}
	set, err := rules.Compile("per", []rules.Document{doc})
	if err != nil {
		return nil, fmt.Errorf("per: %w", err)
	}
	return set, nil
}

// prepare makes room for the keys of every rule that has limits.
func (s *Suggester) prepare() error {
	s.rules = make([]*population, s.set.Len())
	n := 0
	for r := range s.set.Rules() {
		if len(r.Limits) == 0 || slices.ContainsFunc(r.Limits, func(l algorithms.Limit) bool { return l.Limit == 0 }) {
			continue
		}
		if n++; n > mostRules {
			return fmt.Errorf("rules: more than %d of them have limits", mostRules)
		}
		s.rules[r.Rank()] = &population{rule: r, keys: make(map[uint64]*keyStats)}
	}
	return nil
}

// Read takes in a log, which may be compressed with gzip. The error is about reading it.
func (s *Suggester) Read(name string, from io.Reader) error { return s.run.Read(name, from) }

// observe counts a line for every key that it is of.
func (s *Suggester) observe(r *record, c *check) {
	if c.peek || c.logged != nil && c.logged.returned {
		return
	}
	if c.logged != nil {
		s.checks++
		s.allowed += int64(b2i(c.logged.allowed))
		s.noteDomain(c.domain)
	}
	for i := range c.parts {
		p := &c.parts[i]
		s.request.Domain, s.request.Attributes = c.domain, p.attributes
		s.matches = s.set.Match(s.hasher, &s.request, s.matches[:0])
		for j := range s.matches {
			// Limits after the first are of the same keys; an exemption has none.
			if m := &s.matches[j]; m.Limit == 0 && s.rules[m.Rule.Rank()] != nil {
				s.count(r, c, p, m)
			}
		}
	}
}

// noteDomain remembers the domain of a check.
func (s *Suggester) noteDomain(name string) {
	name = name[:min(len(name), mostDomainBytes)]
	if len(s.domains) < mostDomains && !slices.Contains(s.domains, name) {
		s.domains = append(s.domains, strings.Clone(name))
	}
}

func (s *Suggester) count(r *record, c *check, p *part, m *rules.Match) {
	cost, err := m.Rule.Cost(&s.request, p.tokens)
	if err != nil || cost <= 0 {
		return
	}
	keys := s.rules[m.Rule.Rank()]
	keys.lines++
	if !keys.samples(m.Key.Lo) {
		return
	}
	k := keys.keys[m.Key.Lo]
	if k == nil {
		k = &keyStats{text: s.names.subject(m, p), measured: make([]usage, len(s.measures))}
		keys.keys[m.Key.Lo] = k
		if s.kept++; s.kept > s.config.MaxKeys {
			s.cut()
		}
	}
	k.note(r, &s.agents, c.now)
	for i := range s.measures {
		k.measured[i].add(&s.measures[i].limit, c.now, cost)
	}
}

// cut halves the sample of the rule with the most keys, until all have room.
func (s *Suggester) cut() {
	for s.kept > s.config.MaxKeys {
		var most *population
		for _, p := range s.rules {
			if p != nil && (most == nil || len(p.keys) > len(most.keys)) {
				most = p
			}
		}
		s.kept -= most.halve()
	}
}
