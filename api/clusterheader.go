package api

import (
	"fmt"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// clusterHeader is the cluster that a client means, by its fingerprint, or anyCluster. It is "Weir-Cluster" in the form
// in which net/http keeps it.
const (
	clusterHeader = "Weir-Cluster"
	anyCluster    = "any"
)

// ofCluster has next serve requests that mean the node's cluster or name none, and refuses the others before
// anything is counted: the node has the address that one of another cluster had. Requests that name a cluster are
// answered with the node's own.
func ofCluster(s Status, gateway *runtime.ServeMux, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if meant := r.Header[clusterHeader]; len(meant) > 0 {
			own := s.Cluster()
			w.Header().Set(clusterHeader, own)
			if meant[0] != own && meant[0] != anyCluster {
				err := status.Error(codes.FailedPrecondition, fmt.Sprintf("%s: this node is of the cluster %s, not of %.64q", clusterHeader, own, meant[0]))
				_, json := runtime.MarshalerForRequest(gateway, r)
				runtime.HTTPError(r.Context(), gateway, json, w, r, &runtime.HTTPStatusError{HTTPStatus: http.StatusMisdirectedRequest, Err: err})
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}
