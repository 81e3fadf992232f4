package node

import (
	"net"
	"net/http"
	"net/http/pprof"

	"github.com/weirlimit/weir/api"
)

// maxProfileConnections is more than one person needs.
const maxProfileConnections = 16

// profiles returns Go's profiles of this process under /debug/pprof/.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// newProfileServer serves profiles. A profile or a trace takes as long as its caller says, so that answers have no
// deadline. Web pages of other origins cannot request them.
func newProfileServer(guard api.Guard) *http.Server {
	guard.Loopback = true
	protected := guard.Protect(profiles(), func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, err.Error(), http.StatusForbidden)
	})
	return &http.Server{Handler: protected, ReadHeaderTimeout: handshakeTimeout}
}

// badPprof is stricter than badListener: profiles tell too much for any network.
func (o Options) badPprof() string {
	if o.Pprof == "" {
		return ""
	}
	if problem := badHostPort(o.Pprof, 0); problem != "" {
		return problem
	}
	host, port, _ := net.SplitHostPort(o.Pprof)
	if isLoopback(host) {
		return ""
	}
	return o.Pprof + " is reachable from other machines; profiles are served on loopback only, such as 127.0.0.1:" + port
}
