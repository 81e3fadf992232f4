// Package rules provides named rate limits: which limits apply to a request, and
// which counter each of them is held against.
//
// Load reads rules from files, all or nothing, into an immutable Set; Set.Match
// finds the rules of a request; a Source follows files as they change. Compile and
// Set.Documents are the same for rules as plain data, Format writes those as a
// file, and Diff tells what has changed. Set.Explain and Set.Counters are for
// people who want to know why.
//
// # Files
//
// docs/write-rules.md teaches the format, and docs/reference/rules.md lists its bounds. In short, a file is one
// or several YAML documents:
//
//	domain: shop                # the namespace; a request names it too
//	rules:
//	  - id: posts-per-user      # unique within the domain, over all files
//	    when:                   # all of these must hold; none means always
//	      endpoint: /api/v1/posts
//	      method: [POST, PUT]
//	    per: [user]             # one counter per user; none means one shared counter;
//	                            # [[ip], [user]] counts by each
//	    limits:                 # all of them must have room
//	      - {limit: 10, window: 1s, algorithm: token_bucket, burst: 20}
//	      - {limit: 500, window: 1h}
//	      - {limit: 9999, window: {calendar: month, timezone: Europe/Paris, anchor: 15}, algorithm: fixed_window}
//	    replaces: [posts]       # rules that do not apply where this one does
//	    on_failure: allow       # allow | local | deny
//	    durability: relaxed     # relaxed | strict
//	    enforce: 100            # percent of the counters; 0 is a shadow
//	    mode: hard              # hard | {soft: {over: 10%}} | {elastic: {parent: id, up_to: 150%}}
//	    max_delay: 0s           # more: book ahead instead of denying, where the algorithms can
//	    cost: 1                 # per token asked for, or the attribute that has it
//	    ipv6_prefix: 64         # bits of an IPv6 address that tell counters apart
//	    enabled: true           # false means checked but never matched
//	  - {id: staff, when: {ip: 10.0.0.0/8}, unlimited: true}
//
// All rules that match apply. A rule matches if its conditions hold and the
// request has every attribute that one of its sets in per names.
//
// A condition is one of
//
//	/api/v1/posts      exactly this value, compared byte by byte
//	/api/*             every value that starts with /api/
//	"*"                every value: the attribute is there
//	re:/v[12]/.*       RE2, against the whole value; compiled when loaded
//	10.0.0.0/8         every address of the block; only for the attribute ip
//	[GET, "/api/*"]    any of these: exact values, prefixes, expressions, blocks
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
// A document with descriptors instead of rules is one of envoyproxy/ratelimit, and
// means what it means there: Set.Descriptors finds its limits. A domain has either.
//
// # Counters
//
// A counter is named by domain, rule id, the attributes of one set of the rule's
// per with their values, algorithm, and window or calendar. After any other change
// of a rule, its counters keep the tokens used: raising a limit frees only the
// difference.
//
// The attribute ip is an address: rules see it without port, brackets and zone and
// in its canonical form, and counters see the block of ipv6_prefix bits that an
// IPv6 address lies in.
package rules
