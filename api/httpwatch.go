package api

import (
	"net/http"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// atOnce passes on so many requests at a time, and answers further ones in the form
// of the gateway.
func atOnce(most int, gateway *runtime.ServeMux, next http.Handler) http.Handler {
	slots := make(chan struct{}, most)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			next.ServeHTTP(w, r)
		default:
			_, json := runtime.MarshalerForRequest(gateway, r)
			runtime.HTTPError(r.Context(), gateway, json, w, r,
				status.Errorf(codes.ResourceExhausted, "%d requests of this kind are under way, which is the most", most))
		}
	})
}

// watchHandler streams WatchRules as one JSON object per line, which the gateway
// cannot do within a process.
type watchHandler struct {
	config  *ConfigServer
	gateway *runtime.ServeMux
}

// ServeHTTP implements http.Handler.
func (h watchHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, json := runtime.MarshalerForRequest(h.gateway, r)
	stream := http.NewResponseController(w)
	begun := false
	send := func(m *weirv1.WatchRulesResponse) error {
		line, err := json.Marshal(m)
		if err != nil {
			return err
		}
		if !begun {
			begun = true
			w.Header().Set("Content-Type", "application/x-ndjson")
		}
		// Each message may take as long as any other answer as a whole.
		if err := stream.SetWriteDeadline(time.Now().Add(bodyTimeout)); err != nil {
			return err
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
		return stream.Flush()
	}
	req, err := readWatch(r)
	if err == nil && r.Method == http.MethodHead {
		w.Header().Set("Content-Type", "application/x-ndjson")
		return
	}
	if err == nil {
		err = h.config.watch(r.Context(), req, send)
	}
	if !begun { // otherwise the status is on its way
		runtime.HTTPError(r.Context(), h.gateway, json, w, r, err)
	}
}

// readWatch reads the query as the gateway reads others.
func readWatch(r *http.Request) (*weirv1.WatchRulesRequest, error) {
	req, nothing := new(weirv1.WatchRulesRequest), utilities.NewDoubleArray(nil)
	err := r.ParseForm()
	if err == nil {
		err = strictQuery{}.Parse(req, r.Form, nothing)
	}
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return req, nil
}
