package node

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/api"
	"github.com/weirlimit/weir/internal/decisionlog"
	"github.com/weirlimit/weir/internal/jsonline"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/ui"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Bounds of what is read from the decision log for the dashboard.
const (
	maxTail          = 4 << 20 // bytes from the end, for the last decisions of one request
	maxLastDecisions = 20
	maxHourFiles     = 16
)

// howToLogDecisions ends messages about a decision log that lacks something.
const howToLogDecisions = "start nodes with --decision-log FILE --decision-log-which all --decision-log-keys clear"

// decisionFile returns the name of the decision log's file, empty if it is none or is written to a stream.
func (o *Options) decisionFile() string {
	if o.DecisionLog == decisionsToStdout || o.DecisionLog == decisionsToStderr {
		return ""
	}
	return o.DecisionLog
}

// lacksDecisions says why the decision log cannot be replayed, empty if it can be.
func (o *Options) lacksDecisions() string {
	switch {
	case o.decisionFile() == "":
		return "keeps no decision log in a file"
	case o.DecisionLogWhich != decisionlog.All:
		return "logs only the checks that are " + o.DecisionLogWhich
	case o.DecisionLogKeys != decisionlog.Clear:
		return "logs hashes in place of values"
	}
	return ""
}

// hourOfDecisions returns the lines of the decision log since an instant. The error has a status code and says what the log lacks.
func (n *node) hourOfDecisions(since time.Time) (io.ReadCloser, error) {
	o := &n.opts
	if lacks := o.lacksDecisions(); lacks != "" {
		return nil, status.Errorf(codes.FailedPrecondition, "this node %s; %s", lacks, howToLogDecisions)
	}
	names, err := filesSince(o.DecisionLog, since)
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "decision log: %v", err)
	}
	all := &openFiles{}
	var readers []io.Reader
	for _, name := range names {
		file, err := os.Open(name)
		if err != nil {
			return nil, errors.Join(status.Errorf(codes.Unavailable, "decision log: %v", err), all.Close())
		}
		all.files = append(all.files, file)
		readers = append(readers, file)
	}
	all.Reader = &linesSince{since: since, from: bufio.NewReaderSize(io.MultiReader(readers...), replayPiece)}
	return all, nil
}

// openFiles are read one after the other.
type openFiles struct {
	io.Reader
	files []*os.File
}

// Close closes all of them.
func (f *openFiles) Close() error {
	var err error
	for _, file := range f.files {
		err = errors.Join(err, file.Close())
	}
	return err
}

// filesSince returns the log's file and the older ones with lines since an instant, the oldest first: at most maxHourFiles of the newest.
func filesSince(path string, since time.Time) ([]string, error) {
	ext := filepath.Ext(path)
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	prefix := strings.TrimSuffix(filepath.Base(path), ext) + "-"
	var older []string // their names have the time at which they were finished
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) || filepath.Ext(e.Name()) != ext {
			continue
		}
		info, err := e.Info()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err == nil && info.Mode().IsRegular() && !info.ModTime().Before(since) {
			older = append(older, filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	slices.Sort(older)
	older = older[max(0, len(older)-maxHourFiles+1):]
	return append(older, path), nil
}

// linesSince leaves out the lines before an instant. From the first later one on it passes all.
type linesSince struct {
	since time.Time
	from  *bufio.Reader
	begun bool
	rest  []byte // of the line at which it began
}

func (l *linesSince) Read(b []byte) (int, error) {
	for !l.begun {
		line, err := l.from.ReadSlice('\n')
		if at := timeOfLine(line); !at.IsZero() && !at.Before(l.since) {
			l.begun, l.rest = true, slices.Clone(line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) && !l.begun {
			return 0, err
		}
	}
	if len(l.rest) > 0 {
		n := copy(b, l.rest)
		l.rest = l.rest[n:]
		return n, nil
	}
	return l.from.Read(b)
}

// timeOfLine returns the instant of a line of the decision log, the zero time if it has none.
func timeOfLine(line []byte) time.Time {
	_, rest, found := bytes.Cut(line, []byte(`"time":"`))
	text, _, ended := bytes.Cut(rest, []byte(`"`))
	if !found || !ended || len(text) > 64 {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil {
		return time.Time{}
	}
	return at
}

// lastDecisions implements ui.Config.LastDecisions.
func (n *node) lastDecisions(h ring.Hasher) func(context.Context, *weirv1.RateLimitRequest) (ui.Decisions, error) {
	return func(_ context.Context, req *weirv1.RateLimitRequest) (ui.Decisions, error) {
		o := &n.opts
		all := ui.Decisions{Node: o.ID, Kept: o.decisionFile() != "", Which: o.DecisionLogWhich, How: howToLogDecisions}
		if !all.Kept {
			return all, nil
		}
		value := req.GetIdentifier()
		if o.DecisionLogKeys != decisionlog.Clear {
			value = api.HashedValue(h, req.GetIdentifierType(), value)
		}
		tail, err := tailOf(o.DecisionLog, maxTail)
		if err != nil {
			return all, status.Errorf(codes.Unavailable, "decision log: %v", err)
		}
		all.List = decisionsOf(tail, cmp.Or(req.GetDomain(), api.DefaultDomain), req.GetIdentifierType(), value)
		return all, nil
	}
}

// tailOf returns the last whole lines of a file, of that many bytes at most.
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
	tail, err := io.ReadAll(io.NewSectionReader(file, from, info.Size()-from))
	if err != nil {
		return nil, err
	}
	if from > 0 {
		_, tail, _ = bytes.Cut(tail, []byte{'\n'})
	}
	return tail, nil
}

// decisionsOf returns the last decisions about an attribute, the newest first.
func decisionsOf(lines []byte, domain, key, value string) (list []ui.Decision) {
	entry := jsonline.AppendString(append(jsonline.AppendString([]byte(`{"key":`), key), `,"value":`...), value)
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
