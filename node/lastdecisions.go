package node

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/api"
	"github.com/weirlimit/weir/internal/asciijson"
	"github.com/weirlimit/weir/internal/decisionlog"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/ui"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Bounds of what is read from the decision log for the dashboard.
const (
	maxTail          = 4 << 20 // bytes from the end, for the last decisions of one request
	maxLastDecisions = 20
	tailPatience     = time.Second // for other callers that read it
	maxHourFiles     = 16
)

// decisionTail looks for decisions in the end of the decision log, for one caller at a time.
type decisionTail struct {
	opts    *Options
	hasher  ring.Hasher
	reading chan struct{} // has room for one
}

func newDecisionTail(opts *Options, h ring.Hasher) *decisionTail {
	return &decisionTail{opts: opts, hasher: h, reading: make(chan struct{}, 1)}
}

// LastDecisions implements ui.Config.LastDecisions.
func (t *decisionTail) LastDecisions(ctx context.Context, req *weirv1.RateLimitRequest) (ui.Decisions, error) {
	o := t.opts
	all := ui.Decisions{Node: o.ID, Kept: o.decisionFile() != "", Which: o.DecisionLogWhich, How: howToLogDecisions}
	if !all.Kept {
		return all, nil
	}
	value := req.GetIdentifier()
	if o.DecisionLogKeys != decisionlog.Clear {
		value = api.HashedValue(t.hasher, req.GetIdentifierType(), value)
	}
	ctx, cancel := context.WithTimeout(ctx, tailPatience)
	defer cancel()
	select {
	case t.reading <- struct{}{}:
		defer func() { <-t.reading }()
	case <-ctx.Done():
		return all, status.Error(codes.ResourceExhausted, "this node reads its decision log for other callers; try again")
	}
	tail, err := tailOf(o.DecisionLog, maxTail)
	if err != nil {
		return all, status.Errorf(codes.Unavailable, "decision log: %v", err)
	}
	all.List = lastDecisionsOf(tail, cmp.Or(req.GetDomain(), api.DefaultDomain), req.GetIdentifierType(), value)
	return all, nil
}

// tailOf returns the last whole lines of a file, of that many bytes at most. It allocates no more than these.
func tailOf(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it is read only
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	from := max(0, info.Size()-most)
	tail := make([]byte, info.Size()-from)
	n, err := file.ReadAt(tail, from)
	if err != nil && !errors.Is(err, io.EOF) { // the file may be shorter by now
		return nil, err
	}
	tail = tail[:n]
	if from > 0 {
		_, tail, _ = bytes.Cut(tail, []byte{'\n'})
	}
	return tail, nil
}

// lastDecisionsOf returns the last decisions about an attribute, the newest first.
func lastDecisionsOf(lines []byte, domain, key, value string) (list []ui.Decision) {
	entry := asciijson.AppendString(append(asciijson.AppendString([]byte(`{"key":`), key), `,"value":`...), value)
	for len(lines) > 0 && len(list) < maxLastDecisions {
		begin := bytes.LastIndexByte(lines[:len(lines)-1], '\n') + 1
		line := lines[begin:]
		lines = lines[:begin]
		if !bytes.Contains(line, entry) {
			continue
		}
		var l decisionlog.Line
		if json.Unmarshal(line, &l) != nil || l.Domain != domain {
			continue // a line that was cut off, or another's
		}
		list = append(list, decisionOf(&l))
	}
	return list
}

// decisionOf returns what the dashboard shows of a line.
func decisionOf(l *decisionlog.Line) ui.Decision {
	d := ui.Decision{At: l.Time, Allowed: l.Allowed, Source: l.Source, Peek: l.Peek}
	for i := range l.Descriptors {
		for _, e := range l.Descriptors[i].Entries {
			if e.Key == "endpoint" && l.Keys == decisionlog.Clear {
				d.Endpoint = e.Value
			}
		}
		d.Tokens += l.Descriptors[i].Tokens
		for _, limit := range l.Descriptors[i].Limits {
			if !limit.Allowed && !limit.Shadow && d.Rule == "" {
				d.Rule = limit.Rule
			}
		}
	}
	return d
}
