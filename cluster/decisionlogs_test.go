package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// pausing is a log that goes on when it is told to.
type pausing struct {
	io.Reader
	goOn <-chan struct{}
}

func (p pausing) Read(b []byte) (int, error) {
	if n, err := p.Reader.Read(b); n > 0 || err == nil {
		return n, err
	}
	<-p.goOn
	return 0, io.EOF
}

// A node gets the lines of all members that have a log. It names those that have none, that do not answer, or that send their logs to
// too many nodes already, and waits for each only so long.
func TestDecisionsOfOtherNodes(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c", "d")
		c.settled()
		since := time.Unix(77, 5)
		long := bytes.Repeat([]byte("a line of b\n"), 5*decisionPiece/12)
		c.alive["b"].owners.inquiries.log = func(from time.Time) (io.ReadCloser, error) {
			if !from.Equal(since) {
				t.Errorf("since %v, want %v", from, since)
			}
			return io.NopCloser(bytes.NewReader(long)), nil
		}
		c.alive["c"].owners.inquiries.log = func(time.Time) (io.ReadCloser, error) {
			return nil, status.Error(codes.FailedPrecondition, "logs only the checks that are denied")
		}
		a := c.alive["a"].owners
		c.crash("d")
		begun := time.Now()
		logs, missing := a.OtherDecisions(t.Context(), since)
		if took := time.Since(begun); len(logs) != 1 || logs[0].ID != "b" || fmt.Sprint(missing) != "[{c logs only the checks that are denied} {d no answer}]" || took > firstDecisions {
			t.Fatalf("%d logs, missing %v after %v", len(logs), missing, took)
		}
		if got, err := io.ReadAll(logs[0]); err != nil || !bytes.Equal(got, long) || logs[0].Reason() != "" {
			t.Errorf("%d bytes of %d, %v, %q", len(got), len(long), err, logs[0].Reason())
		}

		goOn := make(chan struct{})
		defer close(goOn)
		c.alive["b"].owners.inquiries.log = func(time.Time) (io.ReadCloser, error) {
			return io.NopCloser(pausing{strings.NewReader("first\n"), goOn}), nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range decisionStreams {
			if logs, _ = a.OtherDecisions(ctx, since); len(logs) != 1 {
				t.Fatalf("%d logs", len(logs))
			}
		}
		if more, missing := a.OtherDecisions(ctx, since); len(more) != 0 || !strings.Contains(fmt.Sprint(missing), "{b sends its decision log to 2 nodes already}") {
			t.Errorf("%d logs, missing %v", len(more), missing)
		}
		begun = time.Now()
		got, err := io.ReadAll(logs[0])
		if took := time.Since(begun); string(got) != "first\n" || err == nil || logs[0].Reason() != "no answer" || took != nextDecisions {
			t.Errorf("%q, %v, %q after %v", got, err, logs[0].Reason(), took)
		}
		cancel()
		synctest.Wait()
	})
}
