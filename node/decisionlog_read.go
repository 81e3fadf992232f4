package node

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/decisionlog"
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

// ownDecisions returns the lines of this node's decision log since an instant. The error has a status code and says what the log lacks.
func (n *node) ownDecisions(since time.Time) (io.ReadCloser, error) {
	o := &n.opts
	if lacks := o.lacksDecisions(); lacks != "" {
		return nil, status.Error(codes.FailedPrecondition, lacks)
	}
	all := &openFiles{}
	err := all.open(o.DecisionLog, since)
	if err == nil {
		err = skipBefore(all.files[0], since)
	}
	if err != nil {
		return nil, errors.Join(status.Errorf(codes.Unavailable, "decision log: %v", err), all.Close())
	}
	var readers []io.Reader
	for _, file := range all.files {
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

// open opens the log's file and the older ones with lines since an instant, the oldest first: at most maxHourFiles of the newest.
func (f *openFiles) open(path string, since time.Time) error {
	latest, err := os.Open(path) // before the list is made, which then has it by another name if it is finished meanwhile
	if err != nil {
		return err
	}
	f.files = []*os.File{latest}
	self, err := latest.Stat()
	if err != nil {
		return err
	}
	names, err := olderFiles(path)
	if err != nil {
		return err
	}
	for i := len(names) - 1; i >= 0 && len(f.files) < maxHourFiles; i-- {
		file, err := os.Open(names[i])
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return err
		}
		f.files = slices.Insert(f.files, 0, file)
		info, err := file.Stat()
		if err != nil {
			return err
		}
		if info.ModTime().Before(since) || os.SameFile(info, self) {
			f.files = f.files[1:]
			if err := file.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close closes all of them.
func (f *openFiles) Close() error {
	var err error
	for _, file := range f.files {
		err = errors.Join(err, file.Close())
	}
	return err
}

// finishedAt is the form of the time in the name of a log's file that is finished: that of lumberjack.
const finishedAt = "2006-01-02T15-04-05.000"

// olderFiles returns the finished files of a log, the oldest first.
func olderFiles(path string) (older []string, err error) {
	dir, name := filepath.Split(path)
	entries, err := os.ReadDir(cmp.Or(dir, "."))
	if err != nil {
		return nil, err
	}
	ext := filepath.Ext(name)
	prefix := strings.TrimSuffix(name, ext) + "-"
	for _, e := range entries {
		stamp, ours := strings.CutPrefix(e.Name(), prefix)
		stamp, ends := strings.CutSuffix(stamp, ext)
		if _, err := time.Parse(finishedAt, stamp); err == nil && ours && ends && e.Type().IsRegular() {
			older = append(older, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(older) // by the times in their names
	return older, nil
}

// skipBefore sets the offset of a file of a decision log to a line before the first one since an instant, or to its begin. Of a file of
// many gigabytes it reads a few lines.
func skipBefore(file *os.File, since time.Time) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	pieces := int(info.Size() / replayPiece)
	first := sort.Search(pieces, func(i int) bool { // the first piece after whose first whole line all is later
		from := bufio.NewReader(io.NewSectionReader(file, int64(i)*replayPiece, 2*replayPiece))
		for {
			line, err := from.ReadSlice('\n')
			if at := timeOfLine(line); !at.IsZero() {
				return !at.Before(since)
			}
			if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
				return true // it has no time: the search goes on before it
			}
		}
	})
	_, err = file.Seek(int64(max(first-1, 0))*replayPiece, io.SeekStart)
	return err
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
