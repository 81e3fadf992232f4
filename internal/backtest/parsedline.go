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

// record is what one line says of a request. Its texts are good until the next line.
type record struct {
	time   int64
	values []string // by the index of the field
	status string   // of the answer, where the format has one
	agent  string

	logged *loggedCheck // of a decision log, else nil
}

// fields are those that a mapping needs: the i-th is at record.values[i].
type fields []string

// of returns the indices of a field: none if no mapping needs it, and several if several do.
func (f fields) of(name string) (indices []int) {
	for i, one := range f {
		if one == name {
			indices = append(indices, i)
		}
	}
	return indices
}

// timeFields are tried in this order if none is named.
var timeFields = []string{"time", "timestamp", "@timestamp", "ts", "msec", "time_iso8601", "start_time"}
