package api

import (
	"fmt"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/api/internal/check"
	"github.com/weirlimit/weir/api/internal/wire"
	"github.com/weirlimit/weir/shard"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Bounds of what a client may send. More is refused with the field's name, never
// cut off.
const (
	maxValue       = check.MaxValue         // bytes of an attribute's value
	maxKey         = 64                     // bytes of an attribute's name and of a domain
	maxAttributes  = check.MaxAttributes    // of a request
	maxBatch       = 1000                   // requests of a batch
	maxUnread      = 64 << 20               // bytes of answers on streams that clients have not read; as many again for those that hold little
	fairUnread     = 1 << 20                // bytes of one connection that are little
	maxUnfinished  = 32 << 20               // bytes of messages and requests that have not arrived whole
	fairUnfinished = 32 << 10               // bytes of one connection or request that are little: none is ended for these
	maxUnpacked    = 8 << 20                // bytes of compressed messages that are unpacked and not decided yet
	maxPacked      = 8 << 20                // bytes of those that wait until then, with 32 KiB for the call of each
	maxOpenCalls   = 4096                   // calls over gRPC that clients have begun and not ended, and take most
	maxCalls       = 16384                  // calls over gRPC that clients have begun and the node has not ended
	fewCalls       = 32                     // of both that a connection may have in any case
	maxLingering   = 1 << 16                // refused calls over gRPC of which gRPC keeps something until their deadlines
	farDeadline    = 5 * time.Second        // from which on none of them is
	manyRefused    = 50                     // calls that handlers refuse since something was written, from which on a connection is read slowly
	maxHeldFor     = 10 * time.Second       // after which it does not matter for how much longer they are held
	relieveAgain   = 100 * time.Millisecond // pause between two looks at all of these, if all hold little
	controlRate    = 1000                   // frames of HTTP/2 a second by which a client may control one connection, beyond one for each frame of an answer; more are read later
	controlBurst   = 5000                   // of these that may come at once: a client may end all calls of a connection
	fewLate        = 4                      // connections that may be that late together: of twice as many, each has half of controlRate
	maxControlWait = time.Second            // for which a connection is not read because of them
	maxLate        = 10 * time.Second       // for which a connection may be late before it is closed
	maxPaid        = 60_000                 // of these that answers pay for before they come
	manyCalls      = 8                      // calls that are read at once of a connection, after which the calls of others go first
	littleRead     = 1 << 10                // bytes that are read at once of a connection of which many calls come, half of controlBurst, or manyRefused
	mostRead       = 32 << 10               // bytes that are read at once of any
	maxUnderWay    = 8                      // messages of one stream that are decided at once
	maxLease       = shard.MaxTokenLease    // tokens that a caller may ask to be lent
	maxLimits      = 1024                   // limits that may apply to one request
	maxBatchLimits = 16384                  // limits that may apply to one batch
	maxListed      = 1000                   // counters or rules of one answer to a person

	maxRuleID       = 128     // bytes
	maxFileName     = 256     // bytes of what messages call a file of rules
	defaultPage     = 100     // rules of a page
	maxPage         = 1000    // rules of a page
	maxPageBytes    = 1 << 20 // after which a page or a message of a watch ends
	maxChanges      = 1000    // differences in an answer; more are counted
	maxWatchers     = 100     // watches of rules on one node
	maxWriters      = 64      // changes of rules under way or waiting on one node
	maxHTTPApplies  = 4       // bodies of maxApply at once
	maxProblemBytes = 4 << 10 // of what is wrong with rules, in one of the two ways in which it is said

	// maxApply is the most bytes of an HTTP body with a file of rules. JSON makes a
	// text longer. Over gRPC the file is compressed instead.
	maxApply = 5 << 20

	// MaxMessage is the most bytes of a gRPC message or of an HTTP body, except where envoy.MaxMessage or maxApply
	// applies.
	MaxMessage = 256 << 10

	// StreamWindow is how many bytes of messages a client may send ahead on one gRPC call, before the node has read them: the least that HTTP/2 and
	// gRPC permit.
	StreamWindow = 64 << 10
	maxHeader    = 16 << 10 // bytes of all HTTP headers
	maxEcho      = 512      // bytes after which what is said of a change ends

	maxAuthAttributes = maxAttributes - 3 // header fields that /auth makes attributes, in addition to its own attributes
	maxAuthWaiting    = 1 << 10           // requests that are held until their turn comes; others are answered as if they could not wait
	maxPath           = 4 << 10           // bytes of the path that a proxy asks about; people type and browsers make long ones

	maxHosts    = 64  // names of a server on loopback
	maxHostName = 253 // bytes of one

	retryOverloaded = "1" // seconds after which to ask a node again that had no time

	maxBacktest = 32 << 20 // bytes of a log that is sent to the dashboard, with its form

	unreadWait     = time.Second      // for others to be read, before a stream ends because there is no room
	unreadPatience = 30 * time.Second // for a client to read on whose streams were ended as they were not read

	headerTimeout = 5 * time.Second  // to send the headers of an HTTP request
	bodyTimeout   = 10 * time.Second // to send its body, and to read the answer
	idleTimeout   = 2 * time.Minute  // between two HTTP requests
	applyTimeout  = time.Minute      // to apply a file over HTTP, waiting for others included
)

// extraAttributes is how many attributes a request may have in addition to its identifier and endpoint.
const extraAttributes = maxAttributes - 2

// ofItem is err, made by wire.Invalid, with the batch's item before the field's name.
func ofItem(i int, err error) error { return wire.Under(fmt.Sprintf("requests[%d]", i), err) }

// within reports whether a text has 1 to most bytes, as an error if not.
func within(field, text string, most int) error {
	switch {
	case text == "":
		return wire.Invalid(field, "must not be empty")
	case len(text) > most:
		return wire.Invalid(field, "%d bytes are more than %d", len(text), most)
	}
	return nil
}

func atMost(field, text string, most int) error {
	if len(text) > most {
		return wire.Invalid(field, "%d bytes are more than %d", len(text), most)
	}
	return nil
}

// validCost allows -MaxCost to MaxCost; a negative cost gives tokens back.
func validCost(field string, cost int64) error {
	if cost < -algorithms.MaxCost || cost > algorithms.MaxCost {
		return wire.Invalid(field, "%d is not between %d and %d", cost, int64(-algorithms.MaxCost), int64(algorithms.MaxCost))
	}
	return nil
}

// validLease refuses a lease, or one that is given back, where there can be none.
func validLease(req *weirv1.RateLimitRequest) error {
	tokens, lease, at := req.GetTokensRequested(), req.GetLease(), req.GetDebitedAt()
	switch {
	case lease < 0 || lease > maxLease:
		return wire.Invalid("lease", "%d is not between 0 and %d", lease, maxLease)
	case lease > 0 && (tokens < 0 || req.GetPeek()):
		return wire.Invalid("lease", "%d is asked for together with peek, or with tokens that are given back", lease)
	case at < 0 || at > 0 && (tokens >= 0 || req.GetPeek()):
		return wire.Invalid("debited_at", "%d is not 0, nor an instant at which tokens given back were debited", at)
	}
	return nil
}
