// Package envoy serves Envoy's rate limit service, over gRPC and as envoyproxy/ratelimit does over HTTP.
//
// Descriptors of a request are matched with rules or with files of envoyproxy/ratelimit, and decided as one group.
package envoy
