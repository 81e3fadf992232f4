package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/test/process"
)

// Lines that hostile callers would have in a log, in its two forms, and how a terminal would be directed, in 7 and in 8 bits.
const (
	forgedJSON = `{"time":"2020-01-01T00:00:00Z","level":"INFO","msg":"forged"}`
	forgedText = "time=2020-01-01T00:00:00.000Z level=INFO msg=forged"
	forgery    = "forged\n" + forgedJSON + "\r\n" + forgedText + "\n\x1b[2J\u009b2J\u202e\x7f"
)

// forgeLines makes the requests that a node logs with values from callers: one over HTTP for a foreign host, and one as a node of a foreign version.
func forgeLines(t *testing.T, grpcAddress, httpAddress string) {
	t.Helper()
	conn, err := net.Dial("tcp", httpAddress)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET http://forged%C2%9B2J/v1/health HTTP/1.1\r\nHost: forged\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 403 ") {
		t.Errorf("%q, %v", answer, err)
	}
	c, err := grpc.NewClient(grpcAddress, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	if _, err := peerv1.NewPeerClient(c).GetView(ctx, &peerv1.GetViewRequest{Caller: &peerv1.Caller{Id: forgery, ToId: forgery, Address: forgery}}); err == nil {
		t.Error("a node of a foreign version was answered")
	}
}

// forgedLines returns what is wrong with a log after forgeLines: nil if its lines are as the node has written them.
func forgedLines(log string) error {
	if n := strings.Count(log, "forged"); n < 2 {
		return fmt.Errorf("the log has %d of the names", n)
	}
	for _, r := range log {
		if r != '\n' && (r < ' ' || r > '~') {
			return fmt.Errorf("the log has %q", r)
		}
	}
	for line := range strings.Lines(log) {
		if strings.HasPrefix(line, forgedText) || strings.HasPrefix(line, forgedJSON) {
			return fmt.Errorf("a line is forged: %s", line)
		}
	}
	return nil
}

// Callers cannot forge lines of a node's log, nor direct the terminal that shows it, by what they ask for.
func TestLogLinesCannotBeForged(t *testing.T) {
	t.Parallel()
	t.Run("JSON", func(t *testing.T) {
		n := process.Start(t)
		forgeLines(t, n.GRPC, n.HTTP)
		process.Await(t, process.Patience, func() error { return forgedLines(n.Log()) })
		for line := range strings.Lines(n.Log()) {
			if !json.Valid([]byte(line)) {
				t.Errorf("no JSON: %q", line)
			}
		}
	})
	t.Run("text", func(t *testing.T) {
		ours, theirs := openTerminal(t, 24)
		grpcAddress, httpAddress := freeAddress(t), freeAddress(t)
		n := exec.Command(process.Binary(t), "serve", "--grpc", grpcAddress, "--http", httpAddress, "--etcd-listen", process.Host(t)+":0", "--data-dir", t.TempDir())
		n.Stderr = theirs
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
		_ = theirs.Close()
		var mu sync.Mutex
		var log strings.Builder
		read := make(chan struct{})
		go func() {
			defer close(read)
			for buf := make([]byte, 4096); ; {
				got, err := ours.Read(buf)
				mu.Lock()
				log.Write(buf[:got])
				mu.Unlock()
				if err != nil { // the node has ended
					return
				}
			}
		}()
		defer func() { _ = n.Process.Kill(); _ = n.Wait(); <-read }()
		process.Await(t, process.Patience, func() error {
			resp, err := http.Get("http://" + httpAddress + "/readyz")
			if err != nil {
				return err
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return errors.New(resp.Status)
			}
			return nil
		})
		forgeLines(t, grpcAddress, httpAddress)
		process.Await(t, process.Patience, func() error {
			mu.Lock()
			defer mu.Unlock()
			text := strings.ReplaceAll(log.String(), "\r\n", "\n") // as terminals end lines
			for line := range strings.Lines(text) {
				if !strings.HasPrefix(line, "time=") {
					return fmt.Errorf("no line of the log: %q", line)
				}
			}
			return forgedLines(text)
		})
	})
}
