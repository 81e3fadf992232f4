package ui

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Bounds of a backtest. How large a log may be is a bound of the server.
const (
	backtestTimeout = 60 * time.Second // to send the log, and to replay it
	maxFieldBytes   = 256 << 10        // bytes of a field of the form, except for a pasted log
	maxFields       = 16
	maxMaps         = 32 // attributes of a log
	maxUploads      = 2  // logs that are received or replayed at once
)

const backtestPath = "/ui/backtest"

// decisionFormat is the format of a node's decision log.
const decisionFormat = "decisions"

// logFormats are what the page offers.
var logFormats = []choice{
	{"combined", "nginx or Apache, combined"}, {"json", "JSON, one object per line"}, {"csv", "CSV with names in the first line"},
	{"envoy", "Envoy’s default"}, {decisionFormat, "decision log of a node"},
}

// Backtest is a log, and the rules to replay it with.
type Backtest struct {
	// Rules is the text of a file of rules: they are added to those in force, or take their places. Empty: those in force.
	Rules string
	// Format, Domain and Map are as the flags of weir simulate.
	Format, Domain string
	Map            []string
	// Log is read to its end. Nil: the last hour of the decision logs of all nodes.
	Log io.Reader
}

// BacktestResult is what a backtest has found.
type BacktestResult struct {
	// Lines are all that are not blank; Allowed and Denied are by the tried rules, and DeniedNow by those in force.
	Lines, Allowed, Denied, DeniedNow int64
	// NewlyDenied are denied by the tried rules only, NewlyAllowed by those in force only.
	NewlyDenied, NewlyAllowed int64
	NoRule, Unlimited         int64
	First, Last               time.Time
	// Notes say what was wrong with the log, one sentence each.
	Notes []string
	Rules []BacktestRule
	// Moments are parts of the log's time, each of length Step.
	Moments []BacktestMoment
	Step    time.Duration
	Took    time.Duration
}

// BacktestRule is what one rule did: Lines that it applied to, and how many it denied, or denied before.
type BacktestRule struct {
	Domain, ID               string
	Lines, Denied, DeniedNow int64
	WouldDeny                int64
	Keys, DeniedKeys         int64
	Top                      []BacktestKey // the keys denied most
	Above, Below             []BacktestKey // the keys whose fullest window is nearest to the limit, with its tokens
	Limit                    string        // of Above and Below
}

// BacktestKey is a key and a number.
type BacktestKey struct {
	Key   string
	Count int64
}

// BacktestMoment is a part of a log's time.
type BacktestMoment struct {
	At                        time.Time
	Checks, Denied, DeniedNow int64
}

// backtestBody is the page.
type backtestBody struct {
	Rules, Format, Domain, Map string
	FormatChoices              []choice
	Hour                       bool // the last hour of the decision log was asked for
	Problem                    string
	Result                     *BacktestResult
	Columns                    []momentColumn
	Most                       int64 // checks in a moment
}

// momentColumn is a moment in the picture, whose height is columnHeight.
type momentColumn struct {
	X                   int
	Checks, Denied, Now int // heights
	Title               string
}

const columnHeight = 100

// Top returns y for a height.
func (momentColumn) Top(height int) int { return columnHeight - height }

func newBacktestBody() backtestBody {
	return backtestBody{Rules: newRule, Format: logFormats[0].Value, Domain: "default", FormatChoices: logFormats}
}

// askBacktest shows the form, with the rule that the query names.
func (s *Server) askBacktest(w http.ResponseWriter, r *http.Request) {
	body, q := newBacktestBody(), r.URL.Query()
	if domain, id := q.Get("domain"), q.Get("id"); id != "" {
		text, _, err := s.textOf(r.Context(), domain, id)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		body.Rules, body.Domain = text, domain
	}
	s.render(w, r, http.StatusOK, "backtest", "Backtest", "backtest", body)
}

// backtest replays what a form has sent. The log is kept in memory until then.
func (s *Server) backtest(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(backtestTimeout)) // not in tests without a server
	body := newBacktestBody()
	parts, err := r.MultipartReader()
	if err != nil {
		s.fail(w, r, status.Errorf(codes.InvalidArgument, "the form cannot be read: %v", err))
		return
	}
	log, err := body.read(parts)
	if err == nil {
		err = s.replay(r, &body, log)
	}
	code := http.StatusOK
	if err != nil {
		st := status.Convert(err)
		body.Problem = st.Message()
		switch large, _ := errors.AsType[*http.MaxBytesError](err); {
		case large != nil:
			body.Problem, code = fmt.Sprintf("The log has more than %s. Compress it with gzip, or replay it with weir simulate.", formatBytes(uint64(large.Limit))), http.StatusRequestEntityTooLarge
		case st.Code() == codes.PermissionDenied || st.Code() == codes.Unauthenticated:
			s.fail(w, r, err)
			return
		case st.Code() == codes.ResourceExhausted || st.Code() == codes.Unavailable || st.Code() == codes.DeadlineExceeded || st.Code() == codes.Canceled:
			code = http.StatusServiceUnavailable
		default:
			code = http.StatusBadRequest
		}
	}
	s.render(w, r, code, "backtest", "Backtest", "backtest", body)
}

// replay has a log replayed for a caller that may read the rules which it is replayed with.
func (s *Server) replay(r *http.Request, body *backtestBody, log io.Reader) error {
	ctx, domain := r.Context(), body.Domain
	if body.Hour || body.Format == decisionFormat {
		domain = "" // lines name their own
	}
	if _, err := s.rules.ListRateLimits(ctx, &weirv1.ListRateLimitsRequest{Domain: domain, PageSize: 1}); err != nil {
		return err
	}
	b := Backtest{Rules: body.Rules, Format: body.Format, Domain: body.Domain}
	for line := range strings.Lines(body.Map) {
		if line = strings.TrimSpace(line); line != "" {
			b.Map = append(b.Map, line)
		}
	}
	if len(b.Map) > maxMaps {
		return status.Errorf(codes.InvalidArgument, "map: %d attributes are more than %d", len(b.Map), maxMaps)
	}
	if log != nil {
		select {
		case s.uploads <- struct{}{}:
			defer func() { <-s.uploads }()
		default:
			return status.Error(codes.ResourceExhausted, "this node receives other logs; try again")
		}
		var err error
		if b.Log, err = receive(r, log); err != nil {
			return err
		}
	}
	result, err := s.cfg.Backtest(ctx, b)
	if err != nil {
		return err
	}
	body.Result = result
	body.draw()
	return nil
}

// receive reads a log, which is part of r, and all of r behind it. The server notices only then if the client goes, and a log that stops
// arriving keeps no other one from being replayed.
func receive(r *http.Request, log io.Reader) (io.Reader, error) {
	content, err := io.ReadAll(log)
	if err == nil {
		_, err = io.Copy(io.Discard, r.Body)
	}
	if err != nil {
		return nil, formError(err)
	}
	return bytes.NewReader(content), nil
}

// draw makes the columns of the picture.
func (b *backtestBody) draw() {
	for _, m := range b.Result.Moments {
		b.Most = max(b.Most, m.Checks)
	}
	height := func(n int64) int {
		if n <= 0 {
			return 0
		}
		return max(1, int(n*columnHeight/b.Most))
	}
	for i, m := range b.Result.Moments {
		b.Columns = append(b.Columns, momentColumn{
			X: i, Checks: height(m.Checks), Denied: height(m.Denied), Now: height(m.DeniedNow),
			Title: fmt.Sprintf("%s: %d checks, %d denied, %d by the rules in force", m.At.UTC().Format("2006-01-02 15:04:05 UTC"), m.Checks, m.Denied, m.DeniedNow),
		})
	}
}

// read reads a form up to the log, which is its last field, and returns the log; nil for that of the node. The fields of the editor
// will do as well.
func (b *backtestBody) read(parts *multipart.Reader) (io.Reader, error) {
	for range maxFields {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, formError(err)
		}
		name := part.FormName()
		if name == "paste" || name == "log" {
			in := bufio.NewReader(part)
			if _, err := in.Peek(1); err == nil && !b.Hour {
				return in, nil
			} else if err != nil && !errors.Is(err, io.EOF) {
				return nil, formError(err)
			}
			continue
		}
		text, err := io.ReadAll(io.LimitReader(part, maxFieldBytes+1))
		if err != nil {
			return nil, formError(err)
		}
		if len(text) > maxFieldBytes {
			return nil, status.Errorf(codes.InvalidArgument, "%.20s: more than %s", name, formatBytes(maxFieldBytes))
		}
		b.set(name, string(text))
	}
	if b.Hour {
		return nil, nil
	}
	return nil, status.Error(codes.InvalidArgument, "log: choose a file, or paste some lines")
}

// formError is an error of reading a form, with a status code unless it is about the size.
func formError(err error) error {
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return err
	}
	return status.Errorf(codes.InvalidArgument, "the form cannot be read: %v", err)
}

func (b *backtestBody) set(name, value string) {
	switch name {
	case "rules", "text":
		b.Rules = strings.ReplaceAll(value, "\r\n", "\n")
	case "format":
		b.Format = value
	case "domain":
		if value = strings.TrimSpace(value); value != "" {
			b.Domain = value
		}
	case "map":
		b.Map = value
	case "source":
		b.Hour = value == "hour"
	default: // the other fields of the editor
	}
}
