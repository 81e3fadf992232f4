package wire

import (
	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// Encoded is a message as it travels: the handler decodes its request and encodes its answer. ADR 13 says
// why.
type Encoded struct{ mem.Buffer }

// CopyEncoded returns a message of a copy of b.
func CopyEncoded(b []byte) Encoded { return Encoded{mem.Copy(b, mem.DefaultBufferPool())} }

// codec leaves alone what is encoded, and treats all else as gRPC does.
type codec struct{ encoding.CodecV2 }

// Codec returns the codec that a gRPC server needs whose services have handlers of ReplaceHandler.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2(encodingproto.Name)} }

// Marshal implements encoding.CodecV2. gRPC frees the message.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(Encoded); ok {
		return mem.BufferSlice{m.Buffer}, nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2. The receiver of the message frees it.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(*Encoded); ok {
		m.Buffer = data.MaterializeToBuffer(mem.DefaultBufferPool())
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}
