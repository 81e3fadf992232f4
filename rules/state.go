package rules

// State is a set of rules with what the store says of it. It is immutable.
type State struct {
	// Set are the rules.
	Set *Set
	// Revision is the store's: it rises by one with every change. It is 0 before the
	// first, and for rules that come from files.
	Revision int64

	changed map[ruleName]int64 // revisions of the rules
	stored  []byte             // the value that it was read from, nil if none
}

// RuleRevision returns the store's revision at which the rule changed last, 0 if
// it does not come from the store.
func (s *State) RuleRevision(domain, id string) int64 { return s.changed[ruleName{domain, id}] }
