package api

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/access"
)

const (
	callPart      = 16 << 10               // bytes that gRPC reserves for what it reads from a body at once
	endedCallWait = 100 * time.Millisecond // for a client to read why its call was ended, as it held too much
)

// isGRPC reports whether a request over HTTP is a gRPC call.
func isGRPC(r *http.Request) bool {
	return r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}

// addGRPC has calls answer the gRPC calls to server that permits admits. A call takes more time than on a port of
// gRPC alone. What its client sends counts in budget until the call has ended, as gRPC reads ahead of what it needs.
func addGRPC(server *http.Server, calls *grpc.Server, permits *Access, budget *unfinishedBudget) {
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
		r = r.WithContext(ctx)
		defer countBody(budget, w, r, true).release()
		calls.ServeHTTP(w, r)
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
