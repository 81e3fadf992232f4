package backtest

import (
	"strconv"
	"strings"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/rules"
)

// decisions reads the decision log of a node: see docs/reference/decision-log.md.
type decisions struct {
	s scanner
	c loggedCheck
}

func (d *decisions) begin() {}

func (d *decisions) parse(line []byte, r *record) fault {
	s := &d.s
	s.reset(line)
	d.c = loggedCheck{parts: d.c.parts[:0], attributes: d.c.attributes[:0], limits: d.c.limits[:0]}
	timed := false
	s.open('{')
	for i := 0; s.more('}', i); i++ {
		if key := s.key(); string(key) == "time" {
			r.time, timed = parseInstant(s.text())
		} else {
			d.field(key)
		}
	}
	switch {
	case !s.end() || len(d.c.parts) == 0:
		return broken
	case !timed:
		return noTime
	case d.c.hashed:
		return hashed
	case d.c.source == "overloaded" || d.c.source == "undecided" || d.c.source == "excess":
		return notADecision
	}
	r.logged = &d.c
	return fine
}

func (d *decisions) field(key []byte) {
	s, c := &d.s, &d.c
	switch string(key) {
	case "domain":
		c.domain = textOf(s.text())
	case "api":
		api := string(s.text())
		c.envoy = api == "envoy"
		c.impatient = c.envoy || api == "auth"
	case "node":
		c.node = textOf(s.text())
	case "count_denied":
		c.counts = s.boolean()
	case "shadow":
		c.shadow = s.boolean()
	case "quota":
		c.quota = s.boolean()
	case "keys":
		c.hashed = string(s.text()) != "clear"
	case "source":
		c.source = textOf(s.text())
	case "allowed":
		c.allowed = s.boolean()
	case "peek":
		c.peek = s.boolean()
	case "returned":
		c.returned = s.boolean()
	case "lent":
		c.lent = s.number()
	case "lent_for":
		c.lentFor = s.number()
	case "lent_at":
		c.lentAt = s.number()
	case "descriptors":
		s.open('[')
		for i := 0; s.more(']', i); i++ {
			d.part()
		}
	default:
		s.skip(0)
	}
}

func (d *decisions) part() {
	s, c := &d.s, &d.c
	p := loggedPart{limitsBegin: len(c.limits)}
	s.open('{')
	for i := 0; s.more('}', i); i++ {
		switch string(s.key()) {
		case "tokens":
			p.tokens = s.number()
		case "entries":
			s.open('[')
			for j := 0; s.more(']', j); j++ {
				d.entry()
			}
		case "limits":
			s.open('[')
			for j := 0; s.more(']', j); j++ {
				d.limit()
			}
		default:
			s.skip(0)
		}
	}
	p.attributes, p.limitsEnd = len(c.attributes), len(c.limits)
	c.parts = append(c.parts, p)
}

func (d *decisions) entry() {
	s := &d.s
	var a rules.Attribute
	s.open('{')
	for i := 0; s.more('}', i); i++ {
		switch string(s.key()) {
		case "key":
			a.Key = textOf(s.text())
		case "value":
			a.Value = textOf(s.text())
			d.c.garbled = d.c.garbled || d.c.envoy && strings.Contains(a.Value, "\uFFFD")
		default:
			s.skip(0)
		}
	}
	d.c.attributes = append(d.c.attributes, a)
}

func (d *decisions) limit() {
	s := &d.s
	var l loggedLimit
	s.open('{')
	for i := 0; s.more('}', i); i++ {
		switch string(s.key()) {
		case "rule":
			l.rule = textOf(s.text())
		case "index":
			l.index = s.number()
		case "at":
			l.at = s.number()
		case "source":
			l.by = decidersOf[textOf(s.text())]
		case "shares":
			l.shares = s.number()
		case "leases":
			l.leases = s.boolean()
		case "max_delay":
			d.c.wait = max(d.c.wait, s.number())
		case "counter":
			l.lo = d.counter()
		case "algorithm":
			l.limit.Algorithm, _ = algorithms.Parse(textOf(s.text()))
		case "limit":
			l.limit.Limit = s.number()
		case "nominal":
			l.nominal = s.number()
		case "window":
			l.limit.Window = s.number()
		case "buckets":
			l.limit.Buckets = s.number()
		default:
			s.skip(0)
		}
	}
	s.bad = s.bad || l.rule == "" && !l.isValid()
	d.c.limits = append(d.c.limits, l)
}

// isValid reports whether a limit that a call has brought with it is one. What is counted also above it is held against MaxLimit.
func (l *loggedLimit) isValid() bool {
	tokens := l.limit
	tokens.Limit = min(tokens.Limit, tokens.Algorithm.MostTokens())
	return l.limit.Limit <= algorithms.MaxLimit && l.nominal >= 0 && tokens.Validate() == nil
}

// counter reads a key, and returns its low half.
func (d *decisions) counter() uint64 {
	s := &d.s
	text := s.text()
	if len(text) != 32 {
		s.bad = true
		return 0
	}
	lo, err := strconv.ParseUint(textOf(text[16:]), 16, 64)
	s.bad = s.bad || err != nil
	return lo
}
