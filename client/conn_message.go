package client

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto" // which registers the codec as well
	"google.golang.org/grpc/mem"
	pb "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Bounds of a message. A node refuses more, and ends the stream if the bytes are more.
const (
	maxFrameChecks = 1000
	maxFrame       = 250 << 10 // bytes of the requests; 256 KiB are a node's bound for all
	keepBytes      = 64 << 10  // of a frame whose memory is used again
)

// frame is a message in the making: the requests of some calls, encoded. The callers
// encode, so that nothing reads a request once its caller has given up.
type frame struct {
	id     uint64 // from when it is sent
	bytes  []byte // of a StreamRateLimitsRequest
	ends   []int  // in bytes, of each call's requests
	calls  []*call
	checks int
	traced bool      // it has one call, which says so itself
	due    time.Time // of the call that waits longest
}

// fits reports whether the frame can take in k.
func (f *frame) fits(k *call) bool {
	return !f.traced && !k.traced && f.checks+k.checks <= maxFrameChecks && len(f.bytes)+len(k.bytes) <= maxFrame
}

func (f *frame) add(k *call) {
	f.bytes = append(f.bytes, k.bytes...)
	f.ends = append(f.ends, len(f.bytes))
	f.calls = append(f.calls, k)
	f.checks += k.checks
	f.traced = f.traced || k.traced
	if k.due.After(f.due) {
		f.due = k.due
	}
}

// finish adds what is known when the frame is sent: encoded messages that follow each
// other are one.
func (f *frame) finish(id uint64, left time.Duration) {
	f.id = id
	m := weirv1.StreamRateLimitsRequest{Id: id, Timeout: durationpb.New(left)}
	f.bytes, _ = pb.MarshalOptions{}.MarshalAppend(f.bytes, &m) // cannot fail: it has no text
}

// halve returns the calls of a frame with several as two frames.
func (f *frame) halve() (a, b *frame) {
	a, b = &frame{due: f.due}, &frame{due: f.due}
	begin := 0
	for i, k := range f.calls {
		half := a
		if i >= len(f.calls)/2 {
			half = b
		}
		half.bytes = append(half.bytes, f.bytes[begin:f.ends[i]]...)
		half.ends = append(half.ends, len(half.bytes))
		half.calls = append(half.calls, k)
		half.checks += k.checks
		begin = f.ends[i]
	}
	return a, b
}

// dropAbandoned removes the calls whose callers have gone, which must not be counted, and
// returns how many checks these were.
func (f *frame) dropAbandoned() (dropped int) {
	all, begin := *f, 0
	f.bytes, f.ends, f.calls, f.checks = f.bytes[:0], f.ends[:0], f.calls[:0], 0
	for i, k := range all.calls {
		bytes := all.bytes[begin:all.ends[i]]
		begin = all.ends[i]
		if k.state.Load() == abandoned {
			dropped += k.checks
			k.free()
			continue
		}
		f.bytes = append(f.bytes, bytes...) // to where it stands, or before that
		f.ends = append(f.ends, len(f.bytes))
		f.calls = append(f.calls, k)
		f.checks += k.checks
	}
	clear(all.calls[len(f.calls):])
	return dropped
}

// reset makes f a fresh frame that uses its memory again.
func (f *frame) reset() {
	clear(f.calls)
	*f = frame{bytes: f.bytes[:0], ends: f.ends[:0], calls: f.calls[:0]}
	if cap(f.bytes) > keepBytes {
		f.bytes = nil
	}
}

// codec sends frames as they are, and is the usual one for all else.
type codec struct{ encoding.CodecV2 }

// Marshal implements encoding.CodecV2. The frame must stay as it is until its answer
// has come, or for ever.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*frame); ok {
		return mem.BufferSlice{mem.SliceBuffer(f.bytes)}, nil
	}
	return c.CodecV2.Marshal(v)
}

var (
	streamDesc = &grpc.StreamDesc{StreamName: "StreamRateLimits", ClientStreams: true, ServerStreams: true}
	frameCodec = grpc.ForceCodecV2(codec{encoding.GetCodecV2(proto.Name)})
)
