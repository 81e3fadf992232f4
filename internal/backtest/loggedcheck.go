package backtest

import (
	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/rules"
)

// loggedCheck is a check of a decision log.
type loggedCheck struct {
	domain     string
	source     string
	allowed    bool
	peek       bool
	returned   bool
	hashed     bool
	impatient  bool  // the caller cannot wait as long as rules allow
	wait       int64 // the longest wait of its limits, which tells how long it can
	node       string
	envoy      bool // a call of Envoy, with the options below
	counts     bool // what is denied, too
	shadow     bool
	quota      bool
	garbled    bool // a value of Envoy that is not UTF-8 is not in the log
	lent       int64
	lentFor    int64
	lentAt     int64
	parts      []loggedPart
	attributes []rules.Attribute // of all parts
	limits     []loggedLimit     // of all parts
}

type loggedPart struct {
	tokens      int64
	attributes  int // end of its own
	limitsBegin int
	limitsEnd   int
}

type loggedLimit struct {
	rule    string // empty: the call of Envoy has brought the limit with it
	index   int64
	limit   algorithms.Limit // without burst, calendar and waits
	nominal int64            // tokens, if limit has others
	lo      uint64           // of the counter's key
	at      int64
	by      decidedBy
	shares  int64
	leases  bool
	used    bool // by a match, while a line is decided
}

// decidedBy says what has decided a limit of a decision log.
type decidedBy uint8

const (
	byOwner       decidedBy = iota // or a copy of its counter that has the same
	byLent                         // a node, from tokens that the owner had counted
	byProvisional                  // a standby, by its copy
	byPolicy                       // the failure policy
	byNothing                      // a shadow that no node had time for
)

// decidersOf are the sources of a limit; others are byOwner.
var decidersOf = map[string]decidedBy{
	"lent": byLent, "provisional": byProvisional, "local": byPolicy, "fail_open": byPolicy, "fail_closed": byPolicy, "overloaded": byNothing,
}
