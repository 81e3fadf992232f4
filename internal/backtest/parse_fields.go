package backtest

// What a log can call the two fields that only suggestions look at.
var (
	statusFields = []string{"status", "status_code", "response_code"}
	agentFields  = []string{"user_agent", "http_user_agent", "agent"}
)

// Indexes of fields that are no values.
const (
	notWanted = -1 - iota
	isStatus
	isAgent
	isTime // and less: by rank in the names of the time
)

// put stores a value at an index. Times are left to the caller.
func (r *record) put(at int, v []byte) {
	switch {
	case at >= 0:
		if len(v) > 0 && string(v) != "-" {
			r.values[at] = textOf(v)
		}
	case at == isStatus:
		r.status = textOf(v)
	case at == isAgent:
		r.agent = textOf(v)
	}
}

// timeNames returns the names that the time of a line may have.
func timeNames(timeField string) []string {
	if timeField != "" {
		return []string{timeField}
	}
	return timeFields
}
