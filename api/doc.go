// Package api provides the public edge of a node: gRPC and HTTP/JSON. Envoy's rate limit service is api/envoy.
//
// A request is validated, matched against the rules, decided by the cluster, and
// rendered. In api and the packages below it, and only there, an answer that did not come
// in time becomes a decision, and an error becomes a status code.
package api
