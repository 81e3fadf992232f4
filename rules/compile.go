package rules

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/rules/internal/problem"
)

// Compile makes a Set of documents, by the same rules as Parse. name stands for
// the file in messages, which have no line numbers.
func Compile(name string, docs []Document) (*Set, error) { return Options{}.Compile(name, docs) }

// Compile is Compile for documents that are read in another way.
func (how Options) Compile(name string, docs []Document) (*Set, error) {
	return how.compile(name, docs)
}

func (how Options) compile(name string, docs []Document) (*Set, error) {
	return newLoader(how).compile(name, docs)
}

// compileStored is compile for rules that stand in etcd already. What a later version
// finds pointless in them it only warns of.
func (how Options) compileStored(name string, docs []Document) (*Set, error) {
	l := newLoader(how)
	l.stored = true
	return l.compile(name, docs)
}

func (l *loader) compile(name string, docs []Document) (*Set, error) {
	d := &decoder{loader: l, file: name}
	for i, doc := range docs {
		at := problem.Path{}
		if len(docs) > 1 {
			at = at.Key("documents").Index(i)
		}
		d.document(doc.node(), at)
	}
	return l.set()
}

// Documents returns the rules as documents that Compile makes the same Set of:
// one per run of rules of one domain, without what the defaults say. Without rules
// there are none.
func (s *Set) Documents() []Document {
	var docs []Document
	for _, r := range s.rules {
		if r.Descriptor != nil {
			continue
		}
		if n := len(docs); n == 0 || docs[n-1].Domain != r.Domain {
			docs = append(docs, Document{Domain: r.Domain})
		}
		last := &docs[len(docs)-1]
		last.Rules = append(last.Rules, r.Spec())
	}
	return append(docs, s.describedDocuments()...)
}

// Format writes documents as a file that Parse reads, unless it is longer than a
// file may be: then it takes several. It checks nothing that Compile does; the
// error is of text that YAML has no way to write.
func Format(docs []Document) ([]byte, error) {
	if len(docs) == 0 {
		docs = []Document{{Domain: "default"}} // a file without a document is refused
	}
	var b bytes.Buffer
	e, err := yaml.NewDumper(&b, yaml.WithV3Defaults(), yaml.WithIndent(2), yaml.WithLineWidth(-1))
	if err != nil {
		return nil, fmt.Errorf("format rules: %w", err)
	}
	for _, doc := range docs {
		n := doc.node()
		if err := writable(n); err != nil {
			return nil, fmt.Errorf("format rules of domain %s: %w", problem.Quote(doc.Domain), err)
		}
		if err := e.Dump(n); err != nil {
			return nil, fmt.Errorf("format rules of domain %s: %w", problem.Quote(doc.Domain), err)
		}
	}
	if err := e.Close(); err != nil {
		return nil, fmt.Errorf("format rules: %w", err)
	}
	return b.Bytes(), nil
}

// writable returns an error if n holds text that is not UTF-8: YAML would have it as
// binary data, which a file of rules may not.
func writable(n *yaml.Node) error {
	if !utf8.ValidString(n.Value) {
		return fmt.Errorf("%s is not valid UTF-8", problem.Quote(n.Value))
	}
	for _, child := range n.Content {
		if err := writable(child); err != nil {
			return err
		}
	}
	return nil
}

// Spec returns what a file says of r, in its canonical form: without what the
// defaults say, lists sorted whose order says nothing.
func (r *Rule) Spec() Spec {
	s := Spec{ID: r.ID}
	for _, c := range r.When {
		if s.When == nil {
			s.When = make(map[string]ConditionSpec, len(r.When))
		}
		s.When[c.Attribute] = ConditionSpec{AnyOf: slices.Clone(c.AnyOf), Absent: c.Absent}
	}
	for _, set := range r.Per {
		s.Per = append(s.Per, slices.Clone(set))
	}
	for _, l := range r.Limits {
		s.Limits = append(s.Limits, limitSpec(l))
	}
	s.Unlimited = r.Unlimited
	s.Replaces = slices.Clone(r.Replaces)
	if r.OnFailure != FailAllow {
		s.OnFailure = r.OnFailure.String()
	}
	if r.Durability != Relaxed {
		s.Durability = r.Durability.String()
	}
	if r.Enforce != 100 {
		s.Enforce = new(r.Enforce)
	}
	switch r.Mode.Kind {
	case Hard: // which the format leaves out
	case Soft:
		s.Mode = &ModeSpec{Soft: &SoftSpec{Over: formatPercent(r.Mode.Percent)}}
	case Elastic:
		s.Mode = &ModeSpec{Elastic: &ElasticSpec{Parent: r.Mode.Parent, UpTo: formatPercent(100 + r.Mode.Percent)}}
	}
	if r.maxDelay != 0 {
		s.MaxDelay = formatWindow(time.Duration(r.maxDelay))
	}
	if r.cost != 1 {
		s.Cost = strconv.FormatInt(r.cost, 10)
	} else {
		s.Cost = r.costAttribute
	}
	if r.IPv6Prefix != defaultIPv6Prefix {
		s.IPv6Prefix = int64(r.IPv6Prefix)
	}
	if !r.Enabled {
		s.Enabled = new(false)
	}
	if r.Descriptor != nil {
		spec := r.Descriptor.Spec()
		s.Descriptor, s.OnFailure = &spec, ""
	}
	return s
}

func formatPercent(percent int64) string { return strconv.FormatInt(percent, 10) + "%" }

func limitSpec(l algorithms.Limit) LimitSpec {
	s := LimitSpec{Limit: l.Limit, Burst: l.Burst, Buckets: l.Buckets}
	if l.Calendar != nil {
		s.Calendar = calendarSpec(l.Calendar)
	} else {
		s.Window = formatWindow(time.Duration(l.Window))
	}
	if l.Algorithm != defaultAlgorithm {
		s.Algorithm = l.Algorithm.String()
	}
	return s
}

// calendarSpec takes a calendar's text apart: unit, zone, and maybe the anchor.
func calendarSpec(c *algorithms.Calendar) *CalendarSpec {
	unit, zone, _ := strings.Cut(c.String(), "/")
	s := &CalendarSpec{Calendar: unit, Timezone: zone}
	slash := strings.LastIndexByte(zone, '/')
	if anchor, err := strconv.ParseInt(zone[slash+1:], 10, 64); err == nil {
		s.Timezone, s.Anchor = zone[:max(0, slash)], anchor
	}
	if s.Timezone == "UTC" {
		s.Timezone = ""
	}
	return s
}
