package hostile

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirlimit/weir/test/process"
)

// mostMemory is what abuse may add to a node's memory, in MiB, as docs/threats.md says.
const mostMemory = 256

// mostBusy is the p99 of other callers during abuse that uses up the processors: what clients wait for as a rule.
const mostBusy = 50 * time.Millisecond

// abuses are ways to abuse a node. Each goes on until ctx ends, and fails if the node lets it have more than it should.
var abuses = []struct {
	name string
	play func(ctx context.Context, t *testing.T, n *process.Node)

	// busy says that the abuse uses up the processors of the machine, as fast as the node reads: then 99 % of other callers' checks are answered
	// within mostBusy. If it is false, they take three times as long as without the abuse at most.
	busy bool
}{
	{"headers that never end", slowHeaders, false},
	{"bodies that never end", slowBodies, false},
	{"connections that say nothing", silentConnections, false},
	{"idle connections", idleConnections, false},
	{"calls that say nothing", silentCalls, true},
	{"calls that are reset at once", rapidReset, false},
	{"endless continuations", continuations, false},
	{"pings", pings, false},
	{"settings", settings, false},
	{"compressed bombs", bombs, false},
	{"compressed messages of Envoy", wholeMessages, true},
	{"answers that are not read", unread, true},
	{"answers that many do not read", unreadByMany, true},
	{"many compressed messages of Envoy", manyMessages, true},
	{"messages that never end", slowMessages, false},
	{"messages of Envoy that never end", slowEnvoyMessages, false},
	{"compressed messages of streams that never end", packedMessages, false},
	{"requests of Envoy over HTTP that never end", slowEnvoyBodies, true},
	{"strangers at the protocol of nodes", strangers, false},
}

// Other callers are answered while a node is abused, their limit is exact, and its memory has a bound. The abuse comes from a process of its own. In the
// full form, which looks at times, that has what the node and the other callers leave of the processors: attackers are on other machines.
func TestAbuse(t *testing.T) {
	if victim := abusedNode(); victim != nil {
		playAbuse(t, victim)
		return
	}
	form.NotInBrief(t)
	length := time.Second
	if form.Full() {
		length = 20 * time.Second
	}
	for _, abuse := range abuses {
		t.Run(abuse.name, func(t *testing.T) {
			if !form.Full() {
				t.Parallel() // nothing is timed
			}
			n := process.Start(t, "--rules", rulesFile(t, rulesOfVictims))
			v := newVictims(t, n)
			v.during(t, length/10, nil) // until all is in use
			before := v.during(t, length, nil)
			idle := process.Memory(t, n.PID(), process.Resident)
			meanwhile := v.during(t, length, func(ctx context.Context) { startAbuse(ctx, t, abuse.name, n) })
			most := process.Memory(t, n.PID(), process.MostResident)
			t.Logf("p99 %v before, %v meanwhile; %d of %d refused; %d MiB before, %d at most",
				before.p99(), meanwhile.p99(), meanwhile.refused, len(meanwhile.took)+meanwhile.refused, idle, most)
			if len(meanwhile.failed) > 0 {
				t.Errorf("%d checks of others failed, such as: %v", len(meanwhile.failed), meanwhile.failed[0])
			}
			v.judgeLimit(t)
			if most > idle+mostMemory {
				t.Errorf("%d MiB at most, %d before", most, idle)
			}
			most99 := 3 * before.p99()
			if abuse.busy {
				most99 = mostBusy
			}
			if form.Full() && meanwhile.p99() > most99 {
				t.Errorf("p99 of others is %v, want %v; %v before", meanwhile.p99(), most99, before.p99())
			}
		})
	}
}

// The environment of a process that abuses a node: the name of the abuse, and the node's addresses.
const (
	abuseName = "WEIR_TEST_ABUSE"
	abuseGRPC = "WEIR_TEST_ABUSE_GRPC"
	abuseHTTP = "WEIR_TEST_ABUSE_HTTP"
)

// abusedNode returns the node that this process is to abuse, nil if it is to abuse none.
func abusedNode() *process.Node {
	if os.Getenv(abuseName) == "" {
		return nil
	}
	return &process.Node{GRPC: os.Getenv(abuseGRPC), HTTP: os.Getenv(abuseHTTP)}
}

// startAbuse runs this test in another process until ctx ends, as playAbuse.
func startAbuse(ctx context.Context, t *testing.T, name string, n *process.Node) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Error(err)
		return
	}
	args := []string{self, "-test.run=^TestAbuse$"}
	if form.Full() {
		args = append([]string{"nice", "-n", "19"}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), abuseName+"="+name, abuseGRPC+"="+n.GRPC, abuseHTTP+"="+n.HTTP)
	input, err := cmd.StdinPipe() // it ends when this is closed
	if err == nil {
		defer context.AfterFunc(ctx, func() { _ = input.Close() })()
		var out []byte
		if out, err = cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("PASS")) {
			err = fmt.Errorf("%w\n%s", err, out)
		} else if ctx.Err() == nil {
			err = fmt.Errorf("the abuse ended early:\n%s", out)
		}
	}
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// playAbuse abuses a node until standard input ends.
func playAbuse(t *testing.T, n *process.Node) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	for _, abuse := range abuses {
		if abuse.name == os.Getenv(abuseName) {
			abuse.play(ctx, t, n)
			return
		}
	}
	t.Fatalf("there is no abuse %q", os.Getenv(abuseName))
}

// during has victims ask for a while, in which abuse goes on.
func (v *victims) during(t *testing.T, length time.Duration, abuse func(context.Context)) asked {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var wg sync.WaitGroup
	if abuse != nil {
		wg.Go(func() { abuse(ctx) })
	}
	a := v.ask(ctx)
	wg.Wait()
	if len(a.took) == 0 {
		t.Fatalf("no check was answered: %v", a.failed)
	}
	return a
}

// crowd opens connections to an address, and has each do something until ctx ends. begin sends what comes first.
func crowd(ctx context.Context, t *testing.T, size int, address string, begin string, each func(conn net.Conn)) {
	var wg sync.WaitGroup
	for range size {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			break // it is over
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := io.WriteString(conn, begin); err != nil {
			continue
		}
		if each != nil {
			wg.Go(func() { each(conn) })
		}
	}
	<-ctx.Done()
	wg.Wait()
}

// drip writes a byte every 100 ms until ctx ends, or the node has ended the connection.
func drip(ctx context.Context, conn net.Conn) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if _, err := conn.Write([]byte("x")); err != nil {
				return
			}
		}
	}
}

func slowHeaders(ctx context.Context, t *testing.T, n *process.Node) {
	crowd(ctx, t, 1000, n.HTTP, "GET /v1/health HTTP/1.1\r\nHost: localhost\r\nX: ", func(conn net.Conn) { drip(ctx, conn) })
}

func slowBodies(ctx context.Context, t *testing.T, n *process.Node) {
	crowd(ctx, t, 1000, n.HTTP, "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n{", func(conn net.Conn) { drip(ctx, conn) })
}

func silentConnections(ctx context.Context, t *testing.T, n *process.Node) {
	crowd(ctx, t, 2000, n.GRPC, "", nil)
}

func idleConnections(ctx context.Context, t *testing.T, n *process.Node) {
	crowd(ctx, t, 2000, n.GRPC, clientHello(), func(conn net.Conn) {
		go func() { _, _ = io.Copy(io.Discard, conn) }()
	})
}

// flood sends what more writes, as fast as a node takes it, on a few connections. If the node ends one it opens another.
func flood(ctx context.Context, t *testing.T, n *process.Node, more func(c *rawConn, turn uint32) error) {
	const conns = 4
	var wg sync.WaitGroup
	for range conns {
		wg.Go(func() {
			for ctx.Err() == nil {
				c := dialHTTP2(t, n.GRPC)
				go c.discard()
				var err error
				for turn := uint32(0); ctx.Err() == nil && err == nil; turn++ {
					err = c.send(more, turn)
				}
				_ = c.Close()
			}
		})
	}
	wg.Wait()
}

// ended sends what more writes until ctx ends, on one connection after the other. The node ends each of them.
func ended(ctx context.Context, t *testing.T, n *process.Node, more func(c *rawConn, turn uint32) error) {
	const patience = 10 * time.Second
	for ctx.Err() == nil {
		c, began := dialHTTP2(t, n.GRPC), time.Now()
		go c.discard()
		for turn := uint32(0); c.send(more, turn) == nil; turn++ {
			if time.Since(began) > patience {
				t.Errorf("a connection goes on after %v", patience)
				break
			}
		}
		_ = c.Close()
	}
}

// silentCalls begins as many calls as may be under way on each of many connections, and says nothing in them. If the node ends a connection it opens
// another.
func silentCalls(ctx context.Context, t *testing.T, n *process.Node) {
	const conns, calls = 30, 4000
	var wg sync.WaitGroup
	for range conns {
		wg.Go(func() {
			for ctx.Err() == nil {
				c := dialHTTP2(t, n.GRPC)
				over := context.AfterFunc(ctx, func() { _ = c.Close() })
				go func() {
					for id := uint32(1); id < 2*calls; id += 2 {
						if c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.headers(), EndHeaders: true}) != nil {
							return
						}
					}
					_ = c.flush()
				}()
				c.discard()
				over()
				_ = c.Close()
			}
		})
	}
	wg.Wait()
}

func rapidReset(ctx context.Context, t *testing.T, n *process.Node) {
	flood(ctx, t, n, func(c *rawConn, turn uint32) error {
		id := 2*turn + 1
		if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.headers(), EndHeaders: true}); err != nil {
			return err
		}
		return c.WriteRSTStream(id, http2.ErrCodeCancel)
	})
}

func continuations(ctx context.Context, t *testing.T, n *process.Node) {
	ended(ctx, t, n, func(c *rawConn, turn uint32) error {
		block := c.headers(hpack.HeaderField{Name: fmt.Sprint("x-", turn), Value: text(8 << 10)})
		if turn == 0 {
			return c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block})
		}
		return c.WriteContinuation(1, false, block)
	})
}

func pings(ctx context.Context, t *testing.T, n *process.Node) {
	ended(ctx, t, n, func(c *rawConn, _ uint32) error { return c.WritePing(false, [8]byte{}) })
}

func settings(ctx context.Context, t *testing.T, n *process.Node) {
	flood(ctx, t, n, func(c *rawConn, _ uint32) error {
		return c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 16})
	})
}

// packed returns a compressed message.
func packed(t *testing.T, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32([]byte{1}, uint32(b.Len())), b.Bytes()...)
}

// bombs sends messages that are 200 KB and would be 200 MB.
// manyMessages sends whole messages on more calls than a node unpacks in a second. They shrink as much as what clients send.
func manyMessages(ctx context.Context, t *testing.T, n *process.Node) {
	content := make([]byte, 4<<20)
	_, _ = rand.Read(content[:len(content)/19]) // never fails
	message := packed(t, content)
	onConns(ctx, 12, 500, func(transport http.RoundTripper) {
		for ctx.Err() == nil {
			if call(ctx, transport, n.GRPC, envoyPath, bytes.NewReader(message)) != nil {
				return
			}
		}
	})
}

func bombs(ctx context.Context, t *testing.T, n *process.Node) {
	message := packed(t, make([]byte, 200<<20))
	flood(ctx, t, n, func(c *rawConn, turn uint32) error {
		id := 2*turn + 1
		header := http2.HeadersFrameParam{StreamID: id, BlockFragment: c.headers(hpack.HeaderField{Name: "grpc-encoding", Value: "gzip"}), EndHeaders: true}
		if err := c.WriteHeaders(header); err != nil {
			return err
		}
		for rest := message; len(rest) > 0; {
			part := rest[:min(len(rest), 16<<10)]
			rest = rest[len(part):]
			if err := c.WriteData(id, len(rest) == 0, part); err != nil {
				return err
			}
		}
		return nil
	})
}

// unread asks on connections that have no window for answers.
func unread(ctx context.Context, t *testing.T, n *process.Node) { unreadOn(ctx, t, n, 4) }

func unreadByMany(ctx context.Context, t *testing.T, n *process.Node) { unreadOn(ctx, t, n, 60) }

func unreadOn(ctx context.Context, t *testing.T, n *process.Node, conns int) {
	var wg sync.WaitGroup
	for range conns {
		wg.Go(func() {
			for ctx.Err() == nil { // the node closes connections that cost it much
				unreadCalls(ctx, t, n)
			}
		})
	}
	wg.Wait()
}

// unreadCalls makes calls on one connection, until the node or ctx ends it.
func unreadCalls(ctx context.Context, t *testing.T, n *process.Node) {
	c := dialHTTP2(t, n.GRPC, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	defer c.Close()
	go c.discard()
	for id := uint32(1); ctx.Err() == nil; id += 2 {
		if c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.headers(), EndHeaders: true}) != nil || c.WriteData(id, true, checkMessage) != nil {
			return
		}
		err := os.ErrDeadlineExceeded
		for ctx.Err() == nil && errors.Is(err, os.ErrDeadlineExceeded) { // the node reads later
			_ = c.SetWriteDeadline(time.Now().Add(time.Second))
			err = c.flush()
		}
		if err != nil {
			return
		}
	}
}

// slowMessages sends all but one byte of the longest messages, and slowEnvoyMessages all of those that an Envoy may send, but not the end of their
// streams.
func slowMessages(ctx context.Context, t *testing.T, n *process.Node) {
	sendWithoutEnd(ctx, t, n.GRPC, 4, 1000, "/weir.v1.RateLimiter/CheckRateLimit", unpacked(256<<10, 1))
}

func slowEnvoyMessages(ctx context.Context, t *testing.T, n *process.Node) {
	sendWithoutEnd(ctx, t, n.GRPC, 4, 100, envoyPath, unpacked(4<<20, 0))
}

// packedMessages sends the longest messages that an Envoy may send, compressed to 4 KB, but not the end of their streams.
func packedMessages(ctx context.Context, t *testing.T, n *process.Node) {
	sendWithoutEnd(ctx, t, n.GRPC, 4, 1000, envoyPath, packed(t, make([]byte, 4<<20)))
}

// wholeMessages sends the same to their ends, one after the other on each of that many streams.
func wholeMessages(ctx context.Context, t *testing.T, n *process.Node) {
	message := packed(t, make([]byte, 4<<20))
	onConns(ctx, 4, 500, func(transport http.RoundTripper) {
		for ctx.Err() == nil {
			if call(ctx, transport, n.GRPC, envoyPath, bytes.NewReader(message)) != nil {
				return
			}
		}
	})
}

func slowEnvoyBodies(ctx context.Context, t *testing.T, n *process.Node) {
	crowd(ctx, t, 200, n.HTTP, fmt.Sprintf("POST /json HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", 4<<20, text(4<<20-1)), nil)
}

// unpacked returns a message of that size without its last bytes.
func unpacked(size, missing int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(size)), text(size-missing)...)
}

const envoyPath = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

// sendWithoutEnd sends a message without the end of its stream, on each of that number of streams of each connection. If the node ends a connection it
// opens another.
func sendWithoutEnd(ctx context.Context, t *testing.T, address string, conns, streams int, path string, message []byte) {
	onConns(ctx, conns, streams, func(transport http.RoundTripper) {
		_ = call(ctx, transport, address, path, io.MultiReader(bytes.NewReader(message), untilDone{ctx}))
	})
}

// onConns has play use each of that number of streams of each connection, again and again until ctx ends: once all have returned, on another connection.
func onConns(ctx context.Context, conns, streams int, play func(transport http.RoundTripper)) {
	var wg sync.WaitGroup
	for range conns {
		wg.Go(func() {
			for ctx.Err() == nil {
				transport := &http.Transport{Protocols: new(http.Protocols), MaxConnsPerHost: 1}
				transport.Protocols.SetUnencryptedHTTP2(true)
				var all sync.WaitGroup
				for range streams {
					all.Go(func() { play(transport) })
				}
				all.Wait()
				transport.CloseIdleConnections()
			}
		})
	}
	wg.Wait()
}

// call returns when a call over gRPC has ended.
func call(ctx context.Context, transport http.RoundTripper, address, path string, body io.Reader) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Grpc-Encoding", "gzip") // of messages that say that they are compressed
	req.Header.Set("Te", "trailers")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// untilDone has nothing to read until a context ends.
type untilDone struct{ context.Context }

func (u untilDone) Read([]byte) (int, error) {
	<-u.Done()
	return 0, io.EOF
}

// nodePreface is what connections of nodes begin with. TestTimes fails if it is that of another version.
const nodePreface = "weir-peer/4\n"

// strangers begin as nodes do and go on with junk.
func strangers(ctx context.Context, t *testing.T, n *process.Node) {
	for _, junk := range []string{"", "\x00\x00", "\xff\xff", "\x10\x00" + text(16), text(1 << 20)} {
		for range 100 {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", n.GRPC)
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, nodePreface+junk)
			t.Cleanup(func() { _ = conn.Close() })
			if junk == "" {
				continue
			}
			_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, err := io.Copy(io.Discard, conn); err != nil && isTimeout(err) {
				t.Errorf("a stranger that says %.20q may stay", junk)
			}
		}
	}
	<-ctx.Done()
}

func isTimeout(err error) bool {
	late, ok := err.(net.Error) //nolint:errorlint // io.Copy returns that of the read
	return ok && late.Timeout()
}
