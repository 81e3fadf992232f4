// Package api provides the public edge of a node: gRPC, HTTP/JSON and Envoy's
// rate limit service.
//
// A request is validated, matched against the rules, decided by the cluster, and
// rendered. Here, and only here, an answer that did not come in time becomes a
// decision, and an error becomes a status code.
package api
