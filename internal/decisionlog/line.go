package decisionlog

import (
	"strconv"
	"time"

	"github.com/weirlimit/weir/internal/asciijson"
)

// Version is the version of a line, which rises if a field gets another meaning or goes. A field may be added without.
const Version = 2

// Line is one check: its limits were counted together or not at all. A reader decodes a line into it with encoding/json.
// Instants are Unix nanoseconds, lengths nanoseconds.
type Line struct {
	Version int `json:"version"`
	// Time is when the node that was asked had its answer, by its own clock, in RFC 3339.
	Time time.Time `json:"time"`
	// Node is the node that was asked.
	Node string `json:"node"`
	// API is check, batch, stream, auth or envoy.
	API string `json:"api"`
	// TraceID is the W3C trace id of the call in hexadecimal, if it has one.
	TraceID string `json:"trace_id,omitempty"`
	// RulesHash is that of the rules which the check was matched with.
	RulesHash string `json:"rules_hash"`
	Domain    string `json:"domain"`
	// Keys says how the values of entries are written: Hashed or Clear.
	Keys    string `json:"keys"`
	Allowed bool   `json:"allowed"`
	// Source is that of the metric weir_checks_total; of several descriptors the one that decided. Calls of Envoy can
	// also be undecided, which is an error for Envoy, or excess: more than one call may ask.
	Source string `json:"source"`
	// Peek says that nothing was counted.
	Peek bool `json:"peek,omitempty"`
	// Returned says that Envoy's API has given back what the limits had counted.
	Returned bool `json:"returned,omitempty"`
	// Lent is how many tokens more were lent to the caller, and LentFor how many tokens the costs stand for.
	Lent    int64 `json:"lent,omitempty"`
	LentFor int64 `json:"lent_for,omitempty"`
	// LentAt is the instant of the token lease that negative costs give back.
	LentAt int64 `json:"lent_at,omitempty"`
	// CountDenied, Shadow and Quota say that the node had the option rls-count-denied, rls-shadow or rls-quota, for calls of Envoy.
	CountDenied bool `json:"count_denied,omitempty"`
	Shadow      bool `json:"shadow,omitempty"`
	Quota       bool `json:"quota,omitempty"`
	// Descriptors is one for checks of Weir's own APIs, and one per descriptor of Envoy's.
	Descriptors []Descriptor `json:"descriptors"`
}

// Descriptor is what one part of a check asked for.
type Descriptor struct {
	// Entries are the identifier first, then endpoint and attributes, or a descriptor's entries.
	Entries []Entry `json:"entries"`
	// Tokens is what was asked for, before rules made a cost of it.
	Tokens  int64  `json:"tokens"`
	Allowed bool   `json:"allowed"`
	Source  string `json:"source"`
	// Unlimited is the rule that exempts it from all limits.
	Unlimited string  `json:"unlimited,omitempty"`
	Limits    []Limit `json:"limits"`
}

// Entry is a name and its value.
type Entry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Limit is one limit that a check was held against.
type Limit struct {
	// Rule is empty if the call of Envoy brought the limit with it. Index is the limit's in its rule.
	Rule  string `json:"rule,omitempty"`
	Index int    `json:"index"`
	// Counter is the counter's key in hexadecimal, the same on all nodes of a cluster.
	Counter   string `json:"counter"`
	Algorithm string `json:"algorithm"`
	// Limit is what the counter was held against, and Nominal what the rule or the call of Envoy says if that is another number.
	Limit    int64  `json:"limit"`
	Nominal  int64  `json:"nominal,omitempty"`
	Window   int64  `json:"window,omitempty"`
	Calendar string `json:"calendar,omitempty"` // replaces Window
	Burst    int64  `json:"burst,omitempty"`
	MaxDelay int64  `json:"max_delay,omitempty"`
	Buckets  int64  `json:"buckets,omitempty"`
	Cost     int64  `json:"cost"`
	// Shadow says that a denial denies nothing.
	Shadow bool `json:"shadow,omitempty"`
	// Source is as above. The fields below have a meaning if a node has decided.
	Source string `json:"source"`
	// Shares is among how many nodes the limit is shared if no node has decided by a copy of the counter, and the failure
	// policy has.
	Shares int64 `json:"shares,omitempty"`
	// Leases says that the owner lent tokens to the asked node with the answer, for checks to come.
	Leases bool `json:"leases,omitempty"`
	// Allowed says whether the cost had room.
	Allowed bool `json:"allowed"`
	// At is the instant that the algorithm saw, by the clock of the deciding node.
	At        int64 `json:"at,omitempty"`
	Remaining int64 `json:"remaining"`
	ResetAt   int64 `json:"reset_at,omitempty"`
	// RetryAt is 0 if the cost had room, or never will have.
	RetryAt int64 `json:"retry_at,omitempty"`
	Delay   int64 `json:"delay,omitempty"`
}

// object appends the fields of an object of JSON.
type object struct {
	b     []byte
	begun bool
}

func (o *object) name(name string) {
	if o.begun {
		o.b = append(o.b, ',')
	}
	o.begun = true
	o.b = append(append(append(o.b, '"'), name...), '"', ':')
}

func (o *object) text(name, v string) {
	o.name(name)
	o.b = asciijson.AppendString(o.b, v)
}

func (o *object) number(name string, v int64) {
	o.name(name)
	o.b = strconv.AppendInt(o.b, v, 10)
}

func (o *object) bool(name string, v bool) {
	o.name(name)
	o.b = strconv.AppendBool(o.b, v)
}

func (o *object) textIf(name, v string) {
	if v != "" {
		o.text(name, v)
	}
}

func (o *object) numberIf(name string, v int64) {
	if v != 0 {
		o.number(name, v)
	}
}

func (o *object) boolIf(name string, v bool) {
	if v {
		o.bool(name, v)
	}
}

// AppendTo appends the line as JSON in printable ASCII, with a newline.
func (l *Line) AppendTo(b []byte) []byte {
	o := object{b: append(b, '{')}
	o.number("version", int64(l.Version))
	o.name("time")
	o.b = append(o.b, '"')
	o.b = l.Time.AppendFormat(o.b, time.RFC3339Nano)
	o.b = append(o.b, '"')
	o.text("node", l.Node)
	o.text("api", l.API)
	o.textIf("trace_id", l.TraceID)
	o.text("rules_hash", l.RulesHash)
	o.text("domain", l.Domain)
	o.text("keys", l.Keys)
	o.bool("allowed", l.Allowed)
	o.text("source", l.Source)
	o.boolIf("peek", l.Peek)
	o.boolIf("returned", l.Returned)
	o.numberIf("lent", l.Lent)
	o.numberIf("lent_for", l.LentFor)
	o.numberIf("lent_at", l.LentAt)
	o.boolIf("count_denied", l.CountDenied)
	o.boolIf("shadow", l.Shadow)
	o.boolIf("quota", l.Quota)
	o.name("descriptors")
	o.b = append(o.b, '[')
	for i := range l.Descriptors {
		o.b = l.Descriptors[i].appendTo(comma(o.b, i))
	}
	return append(o.b, ']', '}', '\n')
}

func comma(b []byte, i int) []byte {
	if i > 0 {
		b = append(b, ',')
	}
	return b
}

func (d *Descriptor) appendTo(b []byte) []byte {
	o := object{b: append(b, '{')}
	o.name("entries")
	o.b = append(o.b, '[')
	for i, e := range d.Entries {
		entry := object{b: append(comma(o.b, i), '{')}
		entry.text("key", e.Key)
		entry.text("value", e.Value)
		entry.b = append(entry.b, '}')
		o.b = entry.b
	}
	o.b = append(o.b, ']')
	o.number("tokens", d.Tokens)
	o.bool("allowed", d.Allowed)
	o.text("source", d.Source)
	o.textIf("unlimited", d.Unlimited)
	o.name("limits")
	o.b = append(o.b, '[')
	for i := range d.Limits {
		o.b = d.Limits[i].appendTo(comma(o.b, i))
	}
	return append(o.b, ']', '}')
}

func (l *Limit) appendTo(b []byte) []byte {
	o := object{b: append(b, '{')}
	o.textIf("rule", l.Rule)
	o.number("index", int64(l.Index))
	o.text("counter", l.Counter)
	o.text("algorithm", l.Algorithm)
	o.number("limit", l.Limit)
	o.numberIf("nominal", l.Nominal)
	o.numberIf("window", l.Window)
	o.textIf("calendar", l.Calendar)
	o.numberIf("burst", l.Burst)
	o.numberIf("max_delay", l.MaxDelay)
	o.numberIf("buckets", l.Buckets)
	o.number("cost", l.Cost)
	o.boolIf("shadow", l.Shadow)
	o.text("source", l.Source)
	o.numberIf("shares", l.Shares)
	o.boolIf("leases", l.Leases)
	o.bool("allowed", l.Allowed)
	o.numberIf("at", l.At)
	o.number("remaining", l.Remaining)
	o.numberIf("reset_at", l.ResetAt)
	o.numberIf("retry_at", l.RetryAt)
	o.numberIf("delay", l.Delay)
	return append(o.b, '}')
}
