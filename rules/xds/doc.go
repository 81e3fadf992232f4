// Package xds keeps rules up to date that a server sends over xDS, as Envoy Gateway does for its rate limit service.
//
// A Source opens one stream of the aggregated discovery service (ADS) and subscribes to one type of resource,
// ratelimit.config.ratelimit.v3.RateLimitConfig. The server sends all resources whenever one changes. The Source puts them
// in force and acknowledges them (ACK), or keeps what was in force and says what is wrong with them (NACK). When the
// stream ends it connects again.
//
// The last good resources are kept in a file. A start while the server is away, or silent, has its rules from there.
package xds
