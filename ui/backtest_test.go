package ui

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// logForm returns the content type of a form with a log, and what it has before and behind the log.
func logForm(t *testing.T) (contentType, before, behind string) {
	t.Helper()
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	_, err := parts.CreateFormFile("log", "access.log")
	before = form.String()
	if err = errors.Join(err, parts.Close()); err != nil {
		t.Fatal(err)
	}
	return parts.FormDataContentType(), before, strings.TrimPrefix(form.String(), before)
}

// replaying serves the pages of a node whose replays end with their callers, or when finish is closed. It tells each that begins. There
// is one at a time.
func replaying(t *testing.T) (s *Server, server *httptest.Server, begun chan int, ended chan error, finish chan struct{}) {
	t.Helper()
	s, _ = newEditor(t, referring)
	begun, ended, finish = make(chan int, 4), make(chan error, 4), make(chan struct{})
	var one sync.Mutex
	s.cfg.Backtest = func(ctx context.Context, b Backtest) (*BacktestResult, error) {
		if !one.TryLock() {
			return nil, errors.New("another log is replayed")
		}
		defer one.Unlock()
		n, err := io.Copy(io.Discard, io.LimitReader(b.Log, 1<<20))
		begun <- int(n)
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-finish:
		}
		ended <- err
		return &BacktestResult{}, err
	}
	server = httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, server, begun, ended, finish
}

func post(ctx context.Context, server *httptest.Server, contentType string, body io.Reader) (code int, page string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+backtestPath, body)
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Content-Type", contentType)
	resp, err := server.Client().Do(r)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), errors.Join(err, resp.Body.Close())
}

// A replay ends when its caller goes, though the node has read only the beginning of a large log by then.
func TestReplayEndsWithItsCaller(t *testing.T) {
	_, server, begun, ended, _ := replaying(t)
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	asking.Go(func() {
		contentType, before, behind := logForm(t)
		if _, _, err := post(ctx, server, contentType, strings.NewReader(before+strings.Repeat("line\n", 6<<20)+behind)); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
	<-begun
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the replay has ended with %v", err)
	}
	asking.Wait()
}

// A log that stops arriving keeps no other one from being replayed. More logs than there is memory for are refused.
func TestLogsThatStopArriving(t *testing.T) {
	s, server, begun, _, finish := replaying(t)
	contentType, before, behind := logForm(t)
	var asking sync.WaitGroup
	stalled := make([]*io.PipeWriter, maxUploads)
	defer asking.Wait()
	stall := func(i int) {
		var r *io.PipeReader
		r, stalled[i] = io.Pipe()
		asking.Go(func() {
			if code, page, err := post(t.Context(), server, contentType, r); err != nil || code != http.StatusOK {
				t.Errorf("%d, %v, %s", code, err, page)
			}
		})
		if _, err := io.WriteString(stalled[i], before+"line\n"); err != nil {
			t.Fatal(err)
		}
	}
	end := func(i int) {
		if _, err := io.WriteString(stalled[i], behind); err != nil {
			t.Fatal(err)
		}
		_ = stalled[i].Close()
		if n := <-begun; n != len("line\n") {
			t.Errorf("%d bytes of a log", n)
		}
	}
	for i := range maxUploads {
		stall(i)
	}
	for len(s.uploads) < maxUploads && t.Context().Err() == nil {
		runtime.Gosched()
	}
	end(maxUploads - 1) // though the first one has stopped
	code, page, err := post(t.Context(), server, contentType, strings.NewReader(before+"line\n"+behind))
	if err != nil || code != http.StatusServiceUnavailable || !strings.Contains(page, "receives other logs") {
		t.Errorf("one too many: %d, %v, %s", code, err, page)
	}
	close(finish)
	end(0)
}
