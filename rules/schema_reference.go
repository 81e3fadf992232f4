package rules

import (
	"fmt"

	"github.com/weirlimit/weir/algorithms"
)

// Field is what the reference says of one key of the format.
type Field struct {
	Key     string
	Type    string // such as "percent of the counters"
	Default string // what a file means that does not mention the key, or "required"
	Bounds  string // empty if the type says it all
	Meaning string
	Example string // as YAML, in place of the value
	// Least and Most are the bounds of a number, the same if it is none.
	Least, Most int64
}

// Mapping is one kind of mapping of the format, and its keys in order.
type Mapping struct {
	Name   string // such as "rule"
	Fields []Field
}

// Reference returns the format as the decoder knows it.
func Reference() []Mapping {
	return []Mapping{
		{"document", listed(documentKeys)},
		{"rule", listed(ruleKeys)},
		{"condition", listed(conditionKeys)},
		{"limit", listed(limitKeys)},
		{"calendar", listed(calendarKeys)},
		{"mode", listed(modeKeys)},
		{"soft", listed(softKeys)},
		{"elastic", listed(elasticKeys)},
	}
}

// code formats names as code, separated by commas.
func code(names []string) (list string) {
	for i, name := range names {
		if i > 0 {
			list += ", "
		}
		list += "`" + name + "`"
	}
	return list
}

// draining names the algorithms that have what only buckets have.
func draining() string { return code(algorithms.NamesOf(algorithms.Algorithm.Drains)) }

// lowerBounds names the algorithms whose limits may not be as high as those of others, each after a semicolon.
func lowerBounds() (list string) {
	for _, a := range algorithms.All() {
		if most := a.MostTokens(); most < algorithms.MaxLimit {
			list += fmt.Sprintf("; %d for `%v`", most, a)
		}
	}
	return list
}
