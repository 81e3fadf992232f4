package api

import (
	"net/http"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

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
	// There is nothing to read, and the server's time for it must not end the watch.
	err := stream.SetReadDeadline(time.Time{})
	if err == nil {
		err = h.config.watch(r.Context(), &weirv1.WatchRulesRequest{Domain: r.URL.Query().Get("domain")}, send)
	}
	if !begun { // otherwise the status is on its way
		runtime.HTTPError(r.Context(), h.gateway, json, w, r, err)
	}
}
