package wire

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"sync"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // compresses answers to clients that compress
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// ServerOptions returns the options of a server whose services decode Requests. It unpacks what clients compress with gzip (RFC 1952): to most
// bytes of a message, and to room bytes of all that are not freed yet. A message must be one member, at whose end it says how long it is unpacked: so
// its memory is known before it is unpacked, and is all that it takes. A message of a Request waits as it came until its receiver unpacks it. If
// those that wait have waiting bytes it is not even copied, and its receiver refuses it. charge is called for messages that cost more than clients send: with
// the context of the call, and how many frames of HTTP/2 cost the node as much.
func ServerOptions(most, room, waiting int64, charge func(ctx context.Context, frames int)) []grpc.ServerOption {
	// Half of the processors leave time for calls that are not compressed.
	g := newGunzip(most, room, max(1, runtime.GOMAXPROCS(0)/2))
	g.charge, g.waiting = charge, semaphore.NewWeighted(waiting)
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(int(most)),
		grpc.ForceServerCodecV2(packedCodec{Codec(), g}),
		// The alternative to what is deprecated is a registry of the whole process, which is also that of who embeds a node's API.
		grpc.RPCDecompressor(g), //nolint:staticcheck // see above
	}
}

// gunzip unpacks messages of one member, a few at a time.
type gunzip struct {
	most      int64
	charge    func(ctx context.Context, frames int)
	mark      [16]byte            // random; behind the end of a packed message, where nothing is that clients send
	dropped   [16]byte            // random; in place of mark behind what is left of a message that there was no room for
	room      *semaphore.Weighted // bytes of unpacked messages
	waiting   *semaphore.Weighted // bytes of messages that are not unpacked yet, and of their calls
	unpacking chan struct{}       // has an entry for each message that is being unpacked
	readers   sync.Pool           // of *gzip.Reader
}

func newGunzip(most, room int64, atOnce int) *gunzip {
	g := &gunzip{most: most, charge: func(context.Context, int) {}, room: semaphore.NewWeighted(room), waiting: semaphore.NewWeighted(math.MaxInt64), unpacking: make(chan struct{}, atOnce)}
	_, _ = rand.Read(g.mark[:])    // never fails
	_, _ = rand.Read(g.dropped[:]) // never fails
	return g
}

// Type implements grpc.Decompressor.
func (g *gunzip) Type() string { return "gzip" }

// Do implements grpc.Decompressor: it marks the message for the codec. If it could not wait now, it is not copied, and no more is kept of it than what charges
// its call. It does not count yet: the end of its call may never come.
func (g *gunzip) Do(r io.Reader) ([]byte, error) {
	packed, sized := r.(interface {
		Remaining() int
		Discard(n int) (int, error)
	})
	if !sized {
		return nil, fmt.Errorf("gzip: %T does not say how long the message is", r)
	}
	size := packed.Remaining()
	if size < minCounted || g.mayWait(size) {
		marked := make([]byte, size+len(g.mark))
		n, err := io.ReadFull(r, marked[:size])
		if err != nil {
			return nil, err
		}
		copy(marked[n:], g.mark[:])
		return marked[:n], nil
	}
	if _, err := packed.Discard(size - sizeBytes); err != nil {
		return nil, err
	}
	marked := make([]byte, droppedBytes+len(g.dropped))
	if _, err := io.ReadFull(r, marked[:sizeBytes]); err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint32(marked[sizeBytes:], uint32(size)) //nolint:gosec // a message has fewer bytes
	copy(marked[droppedBytes:], g.dropped[:])
	return marked[:droppedBytes], nil
}

// mayWait reports whether there is room for a packed message of n bytes to wait.
func (g *gunzip) mayWait(n int) bool {
	may := g.waiting.TryAcquire(waitOf(n))
	if may {
		g.waiting.Release(waitOf(n))
	}
	return may
}

// has reports whether a message of a server is one of Do with that mark.
func has(data mem.BufferSlice, mark [16]byte) bool {
	if len(data) != 1 {
		return false
	}
	b := data[0].ReadOnlyData()
	return cap(b) == len(b)+len(mark) && [len(mark)]byte(b[len(b):cap(b)]) == mark
}

// sizeBytes is how many bytes at the end of a member of gzip say how long it is unpacked.
const sizeBytes = 4

// droppedBytes is what Do keeps of a message that may not wait: those bytes, and how long it is packed.
const droppedBytes = sizeBytes + 4

// waitOf is what a packed message of n bytes counts while it waits.
func waitOf(n int) int64 { return int64(n) + callBytes }

// unpack returns a message unpacked, which has most bytes at most. It waits for room until ctx ends. The room is free again once the message is.
func (g *gunzip) unpack(ctx context.Context, packed []byte, most int64) (mem.Buffer, error) {
	const ends = 10 + 8 // bytes of a header and an end
	if len(packed) < ends {
		return nil, status.Errorf(codes.Internal, "message: %v", errNotPacked)
	}
	size := int64(binary.LittleEndian.Uint32(packed[len(packed)-sizeBytes:]))
	if err := g.admit(ctx, len(packed), size, most); err != nil {
		return nil, err
	}
	if size < minCounted {
		out, err := g.read(ctx, packed, size)
		return mem.SliceBuffer(out), err
	}
	wait := waitOf(len(packed))
	if !g.waiting.TryAcquire(wait) {
		return nil, errWaiting
	}
	defer g.waiting.Release(wait)
	if err := g.room.Acquire(ctx, size); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	out, err := g.read(ctx, packed, size)
	if err != nil {
		g.room.Release(size)
		return nil, err
	}
	return mem.NewBuffer(&out, roomOf{g.room, size}), nil
}

var (
	errNotPacked = errors.New("gzip: too short")
	errMembers   = errors.New("gzip: more follows after the end")
)

// admit charges a message of n bytes that says that it has size unpacked, and refuses it if that is more than most.
func (g *gunzip) admit(ctx context.Context, n int, size, most int64) error {
	if size > most {
		g.charge(ctx, 1+n/readPerFrame)
		return errTooLong(size, most)
	}
	if size > usualRatio*int64(n) {
		g.charge(ctx, int(size/unpackedPerFrame))
	}
	return nil
}

// refuse returns why a message may not wait of which Do has kept that.
func (g *gunzip) refuse(ctx context.Context, kept []byte, most int64) error {
	size, n := binary.LittleEndian.Uint32(kept), binary.LittleEndian.Uint32(kept[sizeBytes:])
	if err := g.admit(ctx, int(n), int64(size), most); err != nil {
		return err
	}
	return errWaiting
}

// What a message costs as much as a frame of HTTP/2, about 20 µs.
const (
	readPerFrame     = 1 << 10  // bytes that are read
	unpackedPerFrame = 16 << 10 // bytes that are unpacked
	usualRatio       = 20       // by which messages shrink at most if they are not packed to cost that
)

// callBytes is what gRPC keeps of a call that waits, in addition to its message.
const callBytes = 32 << 10

var errWaiting = status.Error(codes.ResourceExhausted, "message: too many compressed messages wait to be unpacked")

// pieceBytes is how much is unpacked at once, in about 50 µs.
const pieceBytes = 16 << 10

// minCounted is the least size of a message that counts: gRPC does not tell when shorter ones are freed.
const minCounted = 1<<10 + 1

// roomOf is the mem.BufferPool of an unpacked message. When that is freed its room is given back.
type roomOf struct {
	*semaphore.Weighted
	size int64
}

// Get implements mem.BufferPool.
func (r roomOf) Get(length int) *[]byte { return mem.DefaultBufferPool().Get(length) }

// Put implements mem.BufferPool.
func (r roomOf) Put(*[]byte) { r.Release(r.size) }

// read returns the content of packed, which has that size, once it may be unpacked.
func (g *gunzip) read(ctx context.Context, packed []byte, size int64) ([]byte, error) {
	select {
	case g.unpacking <- struct{}{}:
		defer func() { <-g.unpacking }()
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	z, _ := g.readers.Get().(*gzip.Reader)
	if z == nil {
		z = new(gzip.Reader)
	}
	defer g.readers.Put(z)
	out, err := unpack(z, packed, size)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "message: %v", err)
	}
	return out, nil
}

// unpack returns the content of packed, which has that size.
func unpack(z *gzip.Reader, packed []byte, size int64) ([]byte, error) {
	rest := bytes.NewReader(packed)
	if err := z.Reset(rest); err != nil {
		return nil, err
	}
	z.Multistream(false)
	out := make([]byte, size)
	for left := out; len(left) > 0; runtime.Gosched() { // the calls of others wait for a piece
		n, err := io.ReadFull(z, left[:min(len(left), pieceBytes)])
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
		left = left[n:]
	}
	var more [1]byte
	switch n, err := io.ReadFull(z, more[:]); { // the end, which says whether all is true
	case n > 0:
		return nil, gzip.ErrChecksum
	case !errors.Is(err, io.EOF):
		return nil, err
	case rest.Len() > 0:
		return nil, errMembers
	}
	return out, nil
}

// packedCodec is the codec of a server with a gunzip.
type packedCodec struct {
	encoding.CodecV2
	gunzip *gunzip
}

// Unmarshal implements encoding.CodecV2.
func (c packedCodec) Unmarshal(data mem.BufferSlice, v any) error {
	g := c.gunzip
	packed, dropped := has(data, g.mark), has(data, g.dropped)
	if r, ok := v.(*Request); ok {
		if packed || dropped {
			r.gunzip, r.dropped = g, dropped
		}
		return c.CodecV2.Unmarshal(data, &r.Encoded)
	}
	switch {
	case dropped:
		return g.refuse(context.Background(), data[0].ReadOnlyData(), g.most)
	case !packed:
		return c.CodecV2.Unmarshal(data, v)
	}
	b, err := g.unpack(context.Background(), data[0].ReadOnlyData(), g.most)
	if err != nil {
		return err
	}
	defer b.Free()
	return c.CodecV2.Unmarshal(mem.BufferSlice{b}, v)
}
