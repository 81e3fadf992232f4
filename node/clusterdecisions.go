package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxHourLine is the longest line of a decision log that is read whole, in bytes. A node writes none that is longer.
const maxHourLine = 128 << 10

// hourLog has the lines of several nodes' decision logs in the order of their times, as far as each log is in order.
type hourLog struct {
	logs    []*nodeLog
	ids     []string // of all nodes whose lines are there
	missing []string // notes about nodes whose lines are not
	rest    []byte   // of the line at hand
	from    *nodeLog // whose line that is
	close   func() error
}

// nodeLog is the log of one node.
type nodeLog struct {
	id     string
	from   *bufio.Reader
	reason func() string // why it has ended before its time, empty if it has not
	line   []byte        // the next one; nil at the end
	at     time.Time     // of line, or of one before if it has none
}

// clusterDecisions returns the lines of all nodes' decision logs since an instant. It ends with ctx. The error has a status code.
func (n *node) clusterDecisions(ctx context.Context, since time.Time) (*hourLog, error) {
	ctx, cancel := context.WithCancel(ctx)
	h := &hourLog{close: func() error { cancel(); return nil }}
	own, err := n.ownDecisions(since)
	if err == nil {
		h.close = func() error { cancel(); return own.Close() }
		h.add(n.opts.ID, own, func() string { return "its file cannot be read" })
	} else {
		h.miss(n.opts.ID, status.Convert(err).Message())
	}
	others, missing := n.owners.OtherDecisions(ctx, since)
	for _, o := range others {
		h.add(o.ID, o, o.Reason)
	}
	for _, m := range missing {
		h.miss(m.ID, m.Reason)
	}
	if len(h.logs) > 0 {
		return h, nil
	}
	st := status.Convert(err)
	if st.Code() == codes.FailedPrecondition {
		err = status.Errorf(codes.FailedPrecondition, "this node %s; %s", st.Message(), howToLogDecisions)
	}
	return nil, errors.Join(err, h.Close())
}

// add adds a log, of which nothing was read.
func (h *hourLog) add(id string, from io.Reader, reason func() string) {
	l := &nodeLog{id: id, from: bufio.NewReaderSize(from, maxHourLine), reason: reason}
	h.logs, h.ids = append(h.logs, l), append(h.ids, id)
}

func (h *hourLog) miss(id, why string) {
	h.missing = append(h.missing, fmt.Sprintf("Without %s: %s.", id, why))
}

// next reads the next line of a log. A line without an end gets one, and of a longer one than maxHourLine only the begin is kept.
func (l *nodeLog) next() error {
	line, err := l.from.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		line = slices.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = l.from.ReadSlice('\n')
		}
	}
	if l.line = line; len(line) == 0 {
		return err
	}
	if line[len(line)-1] != '\n' {
		l.line = append(slices.Clone(line), '\n')
	}
	if at := timeOfLine(line); !at.IsZero() {
		l.at = at
	}
	return nil // an error comes again
}

// advance reads the next line of a log, and leaves the log out if there is none.
func (h *hourLog) advance(l *nodeLog) {
	err := l.next()
	if err == nil {
		return
	}
	if !errors.Is(err, io.EOF) {
		h.missing = append(h.missing, fmt.Sprintf("Only a part of %s: %s.", l.id, l.reason()))
	}
	h.logs = slices.DeleteFunc(h.logs, func(o *nodeLog) bool { return o == l })
}

// Read implements io.Reader.
func (h *hourLog) Read(b []byte) (int, error) {
	if len(h.rest) == 0 {
		if h.from != nil {
			h.advance(h.from)
		} else {
			for _, l := range slices.Clone(h.logs) {
				h.advance(l)
			}
		}
		if len(h.logs) == 0 {
			return 0, io.EOF
		}
		h.from = slices.MinFunc(h.logs, func(a, b *nodeLog) int { return a.at.Compare(b.at) })
		h.rest = h.from.line
	}
	n := copy(b, h.rest)
	h.rest = h.rest[n:]
	return n, nil
}

// Close ends all logs.
func (h *hourLog) Close() error { return h.close() }

// notes say which nodes' lines are there, and which are not. It is for the end, as a node may stop sending.
func (h *hourLog) notes() []string {
	slices.Sort(h.ids)
	slices.Sort(h.missing)
	return append([]string{"The lines are those of the nodes " + strings.Join(h.ids, ", ") + "."}, h.missing...)
}
