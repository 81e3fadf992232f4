// Package rules provides named rate limits: which limits apply to a request, and
// which counter each of them is held against.
//
// Load reads rules from files, all or nothing, into an immutable Set; Set.Match
// finds the rules of a request; a Source follows files as they change.
//
// # Files
//
// A file is one or several YAML documents:
//
//	domain: shop                # the namespace; a request names it too
//	rules:
//	  - id: posts-per-user      # unique within the domain, over all files
//	    when:                   # all of these must hold; none means always
//	      endpoint: /api/v1/posts
//	      method: [POST, PUT]
//	    per: [user]             # one counter per user; none means one shared counter
//	    limits:                 # all of them must have room
//	      - {limit: 10, window: 1s}
//	      - {limit: 500, window: 1h, algorithm: sliding_window}
//	    enabled: true           # the default; false means checked but never matched
//
// All rules that match apply. A rule matches if its conditions hold and the
// request has every attribute that per names.
//
// A condition is one of
//
//	/api/v1/posts      exactly this value, compared byte by byte
//	/api/*             every value that starts with /api/
//	"*"                every value: the attribute is there
//	re:/v[12]/.*       RE2, against the whole value; compiled when loaded
//	[GET, "/api/*"]    any of these: exact values, prefixes and expressions
//	{absent: true}     the attribute is not there
//
// A '*' stands only at the end. A value that has a star of its own is written as
// an expression: re:/a\*b for "/a*b". So is one that starts with "re:": re:re:x
// for "re:x". The text absent is an exact value like any other. Attribute values
// are text, so numbers, true, null and dates stand in quotes: status: "404".
//
// A window is a Go duration with two more units, d for 24 hours and w for 7 days:
// 10s, 1h30m, 1d, 2w. A limit of 0 denies always.
//
// Anchors, aliases, tags, unknown keys and keys that stand twice are errors.
// Indices in messages start at 0.
//
// # Counters
//
// A counter is named by domain, rule id, the rule's per attributes with their
// values, algorithm and window. Whatever else changes in a rule, its counters
// keep what was used: raising a limit frees only the difference.
package rules
