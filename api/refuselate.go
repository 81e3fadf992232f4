package api

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/tap"
)

// This file bounds the memory of calls over gRPC that are refused before they are read. gRPC gives each call a context with the deadline of its client
// before it asks a tap, and does not cancel it if the tap refuses the call. The context stays in memory until that deadline, also once the connection has
// ended. It is cancelled if a handler refuses the call, which takes nearly twice the time. So taps refuse a number of calls whose deadlines are near, and
// handlers the others.

// lingering counts refused calls whose contexts gRPC keeps until their deadlines. The zero lingering has none.
type lingering struct {
	mu    sync.Mutex
	start time.Time        // guarded by mu; when slot 0 began
	first int64            // guarded by mu; the slot of now
	ends  [lingerSlots]int // guarded by mu; how many deadlines are in a slot, from first on, and around the end
	total int              // guarded by mu; sum of ends
}

const (
	lingerSlot  = 100 * time.Millisecond
	lingerSlots = int64(farDeadline/lingerSlot) + 2 // the slots of now and of farDeadline are begun
)

// add adds a call that is refused now, if its context may linger. The nearer a deadline is, the more calls may linger already: few clients that wait
// for long leave room for many that do not.
func (g *lingering) add(now, deadline time.Time) bool {
	left := deadline.Sub(now)
	if left >= farDeadline {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(now)
	if time.Duration(g.total)*farDeadline >= maxLingering*(farDeadline-max(left, 0)) {
		return false
	}
	g.ends[max(g.slot(deadline), g.first)%lingerSlots]++
	g.total++
	return true
}

// forget is called with mu held. It forgets calls whose deadlines have passed.
func (g *lingering) forget(now time.Time) {
	if g.start.IsZero() {
		g.start = now
	}
	slot := g.slot(now)
	for range min(slot-g.first, lingerSlots) {
		passed := &g.ends[g.first%lingerSlots]
		g.total, *passed = g.total-*passed, 0
		g.first++
	}
	g.first = max(g.first, slot)
}

// slot is called with mu held.
func (g *lingering) slot(t time.Time) int64 { return int64(t.Sub(g.start) / lingerSlot) }

// InTapHandle is grpc.InTapHandle for the services that Bounded, Register and RegisterEnvoy register: calls of other services are not refused if their deadlines
// are far, so that the server must be one of which CheckServices approves.
func (l *Limiter) InTapHandle(handle tap.ServerInHandle) grpc.ServerOption {
	return grpc.InTapHandle(func(ctx context.Context, call *tap.Info) (context.Context, error) {
		accepted, err := handle(ctx, call)
		if err == nil {
			return accepted, nil
		}
		deadline, ends := ctx.Deadline()
		if !ends || l.lingering.add(time.Now(), deadline) {
			return ctx, err
		}
		if conn := meteredConnOf(ctx); conn != nil {
			conn.byHandlers.unwritten.Add(1)
		}
		return context.WithValue(ctx, refusalKey{}, err), nil
	})
}

// refusedByHandlers has the client of a connection read why its calls are refused before it makes many more: gRPC waits for that only if the tap
// refuses them, and keeps 2.6 KB of a call until its answer is written.
type refusedByHandlers struct {
	unwritten atomic.Int64 // calls since something was written last
	writing   sync.Mutex   // held while something is
}

// part returns the part of b into which the connection may be read. It waits for a write if many calls are refused.
func (r *refusedByHandlers) part(b []byte) []byte {
	if r.unwritten.Load() < manyRefused {
		return b
	}
	r.writing.Lock() // it is held for as long as the client does not read
	defer r.writing.Unlock()
	return b[:min(len(b), littleRead)]
}

// written ends a write, which has begun with a lock of writing.
func (r *refusedByHandlers) written() {
	r.unwritten.Store(0)
	r.writing.Unlock()
}

// refusalKey is for why a call is refused that has come to its handler.
type refusalKey struct{}

func refusalOf(ctx context.Context) error {
	err, _ := ctx.Value(refusalKey{}).(error)
	return err
}

// refusedLate is the metadata of services that refusing has registered.
type refusedLate struct{ metadata any }

// CheckServices returns an error if a service of a server with InTapHandle was registered by itself: its calls would be answered though they are refused.
func CheckServices(server *grpc.Server) error {
	for name, info := range server.GetServiceInfo() {
		if _, ok := info.Metadata.(refusedLate); !ok {
			return fmt.Errorf("the service %s is registered without Bounded, Register or RegisterEnvoy", name)
		}
	}
	return nil
}

// refusing registers services whose handlers refuse calls for InTapHandle, before they read a message.
type refusing struct{ grpc.ServiceRegistrar }

// RegisterService implements grpc.ServiceRegistrar.
func (r refusing) RegisterService(service *grpc.ServiceDesc, implementation any) {
	s := *service
	s.Methods, s.Streams, s.Metadata = nil, nil, refusedLate{service.Metadata}
	for _, m := range service.Methods {
		handle := m.Handler
		m.Handler = func(server any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			if err := refusalOf(ctx); err != nil {
				return nil, err
			}
			return handle(server, ctx, decode, intercept)
		}
		s.Methods = append(s.Methods, m)
	}
	for _, st := range service.Streams {
		handle := st.Handler
		st.Handler = func(server any, stream grpc.ServerStream) error {
			if err := refusalOf(stream.Context()); err != nil {
				return err
			}
			return handle(server, stream)
		}
		s.Streams = append(s.Streams, st)
	}
	r.ServiceRegistrar.RegisterService(&s, implementation)
}
