package wire

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Answerer answers an encoded request, whose bytes it does not keep.
type Answerer func(ctx context.Context, request Part) (Encoded, error)

// ReplaceHandler makes answer the handler of a method.
func ReplaceHandler(service *grpc.ServiceDesc, method string, answer Answerer) {
	fullMethod := "/" + service.ServiceName + "/" + method
	i := slices.IndexFunc(service.Methods, func(m grpc.MethodDesc) bool { return m.MethodName == method })
	service.Methods = slices.Clone(service.Methods)
	service.Methods[i].Handler = func(server any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		var request Request
		if err := decode(&request); err != nil {
			return nil, err
		}
		defer request.Free()
		handle := func(ctx context.Context, _ any) (any, error) {
			if err := request.Unpack(ctx); err != nil {
				return nil, err
			}
			return answer(ctx, request.Part())
		}
		if intercept == nil {
			return handle(ctx, nil)
		}
		info := &grpc.UnaryServerInfo{Server: server, FullMethod: fullMethod}
		return intercept(ctx, &request, info, handle)
	}
}

// Decoded calls a handler with a decoded message, and decodes its answer.
func Decoded[M proto.Message](ctx context.Context, answer Answerer, request proto.Message, response M) (M, error) {
	b, err := proto.Marshal(request)
	if err != nil {
		return response, Invalid("message", "cannot be encoded: %v", err)
	}
	m, err := answer(ctx, NewPart(b))
	if err != nil {
		return response, err
	}
	defer m.Free()
	return response, proto.Unmarshal(m.ReadOnlyData(), response)
}
