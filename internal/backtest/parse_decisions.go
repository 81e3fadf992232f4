package backtest

import (
	"strconv"

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
	case d.c.source == "overloaded" || d.c.source == "unanswered" || d.c.source == "excess":
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
		c.impatient = api == "envoy" || api == "auth"
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
		case "max_delay":
			d.c.wait = max(d.c.wait, s.number())
		case "counter":
			text := s.text()
			if len(text) != 32 {
				s.bad = true
				break
			}
			lo, err := strconv.ParseUint(textOf(text[16:]), 16, 64)
			s.bad = s.bad || err != nil
			l.lo = lo
		default:
			s.skip(0)
		}
	}
	d.c.limits = append(d.c.limits, l)
}
