package rules

// FailurePolicy says what becomes of a request if no node can decide in time.
type FailurePolicy uint8

// The failure policies.
const (
	FailAllow FailurePolicy = iota // it passes
	FailLocal                      // the asked node decides by its share of the limit
	FailDeny                       // it is denied
)

var failurePolicies = []string{FailAllow: "allow", FailLocal: "local", FailDeny: "deny"}

// String returns the name that rules use, such as "allow".
func (p FailurePolicy) String() string { return failurePolicies[p] }
