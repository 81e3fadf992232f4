package envoy

import envoyrules "github.com/weirlimit/weir/rules/envoy"

// Config says how the service answers. The zero value is the default.
type Config struct {
	// CountDenied counts every descriptor by itself, and when it is over its limit, too,
	// as envoyproxy/ratelimit does. Otherwise a request is counted whole or not at all. It
	// is for descriptors that count in windows.
	CountDenied bool
	// Shadow never denies a request; the statuses tell what would have.
	Shadow bool
	// Quota treats all descriptors as if their quota_mode were set.
	Quota bool
	// Headers are the names of three headers to add to responses: for the limit, what
	// remains, and in how many seconds it is reset. None means no headers.
	Headers []string
	// Metadata adds dynamic metadata to answers.
	Metadata bool
	// NearLimit is the share of a limit from which on hits count as near it, 0 for 0.8.
	NearLimit float64
	// Rules say how descriptors count, for limits that requests bring with them.
	Rules envoyrules.Options
	// NeedsRules makes GET /healthcheck fail while there are no rules.
	NeedsRules bool
}
