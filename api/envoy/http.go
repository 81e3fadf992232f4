package envoy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weirlimit/weir/api/internal/jsonbody"
	"github.com/weirlimit/weir/internal/access"
	"github.com/weirlimit/weir/rules"
)

// Mux is what AddPaths adds to, such as *http.ServeMux.
type Mux interface {
	Handle(pattern string, handler http.Handler)
}

// AddPaths adds the paths that envoyproxy/ratelimit has over HTTP. Ready reports whether the node serves, and refuse
// answers a caller that may not read the rules.
func (s *Service) AddPaths(mux Mux, ready func() bool, refuse func(http.ResponseWriter, error)) {
	mux.Handle("POST /json", s.overload.Watched(http.MaxBytesHandler(http.HandlerFunc(s.serveJSON), MaxMessage)))
	mux.Handle("GET /healthcheck", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !ready() || s.config.NeedsRules && s.checks.Rules().Len() == 0 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, "OK") // a client that is gone does not matter
	}))
	mux.Handle("GET /rlconfig", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := access.All(r.Context(), access.Rules); err != nil {
			refuse(w, err)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_ = dumpRules(w, s.checks.Rules()) // likewise
	}))
}

// serveJSON answers a RateLimitRequest in JSON: 200, 429 if it is over its limit, and 400 for any error.
func (s *Service) serveJSON(w http.ResponseWriter, r *http.Request) {
	var request rlsv3.RateLimitRequest
	if err := new(jsonbody.Marshaler).NewDecoder(r.Body).Decode(&request); err != nil {
		code := http.StatusBadRequest
		if errors.Is(err, jsonbody.ErrNoRoom) {
			code = http.StatusServiceUnavailable
		}
		http.Error(w, err.Error(), code)
		return
	}
	response, err := s.ShouldRateLimit(r.Context(), &request)
	if err != nil {
		code := http.StatusBadRequest
		if status.Code(err) == codes.Unavailable {
			code = http.StatusServiceUnavailable
		}
		http.Error(w, status.Convert(err).Message(), code)
		return
	}
	text, err := protojson.Marshal(response)
	if err == nil {
		text, err = jsonbody.Compact(text)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if response.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(text) // a client that is gone does not matter
}

// dumpRules writes a line per limit: of descriptors as envoyproxy/ratelimit does it, of
// rules in a similar form.
func dumpRules(to io.Writer, set *rules.Set) error {
	for r := range set.Rules() {
		d := r.Descriptor
		if d != nil {
			unit := strings.ToUpper(d.Unit.String())
			if r.Unlimited {
				unit = "UNKNOWN"
			}
			_, err := fmt.Fprintf(to, "%s.%s: unit=%s requests_per_unit=%d, shadow_mode: %t, quota_mode: %t\n", r.Domain, r.ID, unit, d.Requests, d.Shadow, d.Quota)
			if err != nil {
				return err
			}
			continue
		}
		for _, l := range r.Limits {
			window := time.Duration(l.Window).String()
			if l.Calendar != nil {
				window = l.Calendar.String()
			}
			if _, err := fmt.Fprintf(to, "%s.%s: limit=%d window=%s algorithm=%v\n", r.Domain, r.ID, l.Limit, window, l.Algorithm); err != nil {
				return err
			}
		}
		if r.Unlimited {
			if _, err := fmt.Fprintf(to, "%s.%s: unlimited\n", r.Domain, r.ID); err != nil {
				return err
			}
		}
	}
	return nil
}
