package wire

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
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

// Answerer answers an encoded request, which it does not keep.
type Answerer func(ctx context.Context, request []byte) (Encoded, error)

// ReplaceHandler makes answer the handler of a method.
func ReplaceHandler(service *grpc.ServiceDesc, method string, answer Answerer) {
	fullMethod := "/" + service.ServiceName + "/" + method
	i := slices.IndexFunc(service.Methods, func(m grpc.MethodDesc) bool { return m.MethodName == method })
	service.Methods = slices.Clone(service.Methods)
	service.Methods[i].Handler = func(server any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		var request Encoded
		if err := decode(&request); err != nil {
			return nil, err
		}
		defer request.Free()
		if intercept == nil {
			return answer(ctx, request.ReadOnlyData())
		}
		info := &grpc.UnaryServerInfo{Server: server, FullMethod: fullMethod}
		return intercept(ctx, request, info, func(ctx context.Context, _ any) (any, error) {
			return answer(ctx, request.ReadOnlyData())
		})
	}
}

// Decoded calls a handler with a decoded message, and decodes its answer.
func Decoded[M proto.Message](ctx context.Context, answer Answerer, request proto.Message, response M) (M, error) {
	b, err := proto.Marshal(request)
	if err != nil {
		return response, Invalid("message", "cannot be encoded: %v", err)
	}
	m, err := answer(ctx, b)
	if err != nil {
		return response, err
	}
	defer m.Free()
	return response, proto.Unmarshal(m.ReadOnlyData(), response)
}
