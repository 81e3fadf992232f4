package api

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/access"
)

// Port says which calls are served where a caller has connected. The column port of needs says it for each call.
type Port uint8

// The ports.
const (
	// AnyPort serves all calls: that of a node without an admin port. As the port of a call it means that all
	// ports serve it.
	AnyPort Port = iota
	// PublicPort is that of checks, of a node that has an admin port too.
	PublicPort
	// AdminPort is that of metrics, profiles, health details and changes.
	AdminPort
)

// serves reports whether calls of port at are served at p.
func (p Port) serves(at Port) bool { return p == AnyPort || at == AnyPort || p == at }

// refusal is the status of a call that is served at the other port of the node.
func (p Port) refusal() error {
	if p == AdminPort {
		return status.Error(codes.Unimplemented, "not served at the admin port: checks are for the node's other ports (--grpc, --http)")
	}
	return status.Error(codes.Unimplemented, "not served at this port: this node has an admin port (--admin), and metrics, profiles and changes are served there only")
}

// isGRPC reports whether a request over HTTP is a gRPC call.
func isGRPC(r *http.Request) bool {
	return r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}

// addGRPC has calls answer the gRPC calls to server that permits admits. A call takes more time than on a port of
// gRPC alone.
func addGRPC(server *http.Server, calls *grpc.Server, permits *Access) {
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	others := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isGRPC(r) {
			others.ServeHTTP(w, r)
			return
		}
		if hasExpired(w, r) {
			refuseCall(w, errExpired)
			return
		}
		ctx, err := permits.admit(r.Context(), r.URL.Path, permits.certificate(r), r.Header["Authorization"])
		if err != nil {
			refuseCall(w, err)
			return
		}
		endless(w) // calls have deadlines of their own
		calls.ServeHTTP(w, r.WithContext(ctx))
	})
}

// refuseCall answers a gRPC call over HTTP with the status of err.
func refuseCall(w http.ResponseWriter, err error) {
	st := status.Convert(access.StatusOf(err))
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Grpc-Status", fmt.Sprint(uint32(st.Code())))
	w.Header().Set("Grpc-Message", encodeMessage(st.Message()))
	w.WriteHeader(http.StatusOK)
}

// encodeMessage returns the message of a status as gRPC has it in a header field: bytes that are not printable
// ASCII, and percent signs, are percent-encoded.
func encodeMessage(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		if c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// unhurried has next answer without the bounds of time that other answers have: a profile takes as long as its
// caller says.
func unhurried(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p, ok := w.(*patientWriter); ok {
			w = p.ResponseWriter
		}
		endless(w)
		next.ServeHTTP(w, r)
	})
}

// endless takes the deadlines of a connection, or of a stream over HTTP/2, away.
func endless(w http.ResponseWriter) {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{}) // not in tests without a server
	_ = c.SetWriteDeadline(time.Time{})
}
