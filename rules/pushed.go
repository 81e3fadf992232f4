package rules

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/rules/internal/problem"
)

// Pushed has the rules that a server sends as documents. Its methods are safe for concurrent use, except that
// Put and Refuse are called by one goroutine at a time.
type Pushed struct {
	current
	from    string
	how     Options
	log     *slog.Logger
	metrics *metrics
}

// Received is a document with the name that the server has for it, which stands for the file in messages.
type Received struct {
	Name string
	Document
}

// NewPushed returns a Pushed without rules, whose Set is Missing unless nothing is to be limited before there are. The server
// that sends them is named from in messages.
func NewPushed(from string, how Options, startEmpty bool, log *slog.Logger, reg prometheus.Registerer) (*Pushed, error) {
	m, err := newMetrics(reg)
	if err != nil {
		return nil, fmt.Errorf("register the metrics of rules: %w", err)
	}
	none, err := how.compile(from, nil)
	if err != nil {
		return nil, err
	}
	none.missing = !startEmpty
	p := &Pushed{from: from, how: how, log: log, metrics: m}
	p.set.Store(none)
	return p, nil
}

// Put replaces all rules by those of docs, which may be none. Bad ones are refused whole: the set in force stays,
// and the error, which is also that of Err, is a *LoadError.
func (p *Pushed) Put(docs []Received) error {
	l := newLoader(p.how)
	for _, doc := range docs {
		d := &decoder{loader: l, file: doc.Name}
		d.document(doc.node(), problem.Path{})
	}
	set, err := l.set()
	if err != nil {
		p.Refuse(err)
		return err
	}
	p.use(set, p.metrics, p.log, p.from)
	return nil
}

// Refuse notes that the server has sent what are no rules, and why. The set in force stays.
func (p *Pushed) Refuse(err error) { p.refuse(err, p.metrics, p.log, p.from) }

// Change refuses: the rules are changed where the server has them.
func (p *Pushed) Change(context.Context, bool, Edit) (old, next *State, err error) {
	return nil, nil, fmt.Errorf("%w: it takes them from the xDS server %s; change them there, or start it without --xds-server", ErrReadOnly, p.from)
}
