package wire

import (
	"context"
	"unsafe"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Request is a message from a client. Before Unpack it is as it came: if the client has compressed it, it takes little memory until there is room.
type Request struct {
	Encoded
	most     int64   // bytes that it may have; 0 if its server alone has a bound
	gunzip   *gunzip // nil unless it is compressed
	dropped  bool    // it was compressed, and there was no room for it to wait
	unpacked bool    // it was compressed
}

// Limit has the message have most bytes at most, unpacked.
func (r *Request) Limit(most int) error {
	if r.Len() > most {
		return errTooLong(int64(r.Len()), int64(most))
	}
	r.most = int64(most)
	return nil
}

func errTooLong(n, most int64) error {
	return status.Errorf(codes.ResourceExhausted, "message: %d bytes are more than %d", n, most)
}

// Unpack unpacks the message if it is compressed. It waits for room until ctx ends. Others wait for that room until it is freed.
func (r *Request) Unpack(ctx context.Context) error {
	if r.gunzip == nil {
		return nil
	}
	most := r.gunzip.most
	if r.most > 0 {
		most = min(most, r.most)
	}
	if r.dropped {
		return r.gunzip.refuse(ctx, r.ReadOnlyData(), most)
	}
	b, err := r.gunzip.unpack(ctx, r.ReadOnlyData(), most)
	if err != nil {
		return err
	}
	r.Encoded.Free()
	r.Buffer, r.gunzip, r.unpacked = b, nil, true
	return nil
}

// Part returns the whole of the message, which is unpacked.
func (r *Request) Part() Part {
	if b := r.ReadOnlyData(); r.unpacked { // nothing uses them again
		return Part{b, unsafe.String(unsafe.SliceData(b), len(b))}
	}
	return NewPart(r.ReadOnlyData())
}

// Free frees the message.
func (r *Request) Free() { r.Encoded.Free() }
