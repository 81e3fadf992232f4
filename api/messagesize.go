package api

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/api/internal/wire"
)

// Bounded returns a registrar with server for services whose messages have MaxMessage
// bytes at most. The server itself must have ServerOptions.
func Bounded(server *grpc.Server) *BoundedServer { return &BoundedServer{server} }

// BoundedServer is a gRPC server that refuses to services longer messages than
// MaxMessage.
type BoundedServer struct{ *grpc.Server }

// RegisterService implements grpc.ServiceRegistrar.
func (s *BoundedServer) RegisterService(service *grpc.ServiceDesc, implementation any) {
	refusing{s.Server}.RegisterService(boundedService(service, MaxMessage), implementation)
}

// boundedService returns a service whose methods refuse longer messages.
func boundedService(service *grpc.ServiceDesc, most int) *grpc.ServiceDesc {
	bounded := *service
	bounded.Methods, bounded.Streams = nil, nil
	for _, m := range service.Methods {
		handle := m.Handler
		m.Handler = func(server any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			return handle(server, ctx, func(into any) error { return decodeWithin(ctx, decode, into, most) }, intercept)
		}
		bounded.Methods = append(bounded.Methods, m)
	}
	for _, st := range service.Streams {
		handle := st.Handler
		st.Handler = func(server any, stream grpc.ServerStream) error { return handle(server, boundedStream{stream, most}) }
		bounded.Streams = append(bounded.Streams, st)
	}
	return &bounded
}

// boundedStream refuses longer messages.
type boundedStream struct {
	grpc.ServerStream
	most int
}

// RecvMsg implements grpc.ServerStream.
func (s boundedStream) RecvMsg(m any) error {
	return decodeWithin(s.Context(), s.ServerStream.RecvMsg, m, s.most)
}

// decodeWithin decodes a message that has most bytes at most. A wire.Request is still to be unpacked.
func decodeWithin(ctx context.Context, decode func(any) error, into any, most int) error {
	m, keep := into.(*wire.Request)
	if !keep {
		m = new(wire.Request)
	}
	if err := decode(m); err != nil {
		return err
	}
	err := m.Limit(most)
	if keep && err == nil {
		return nil
	}
	defer m.Free()
	if err == nil {
		err = m.Unpack(ctx)
	}
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(m.ReadOnlyData(), into.(proto.Message)); err != nil {
		return status.Errorf(codes.Internal, "message: %v", err)
	}
	return nil
}
