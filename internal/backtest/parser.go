package backtest

import (
	"fmt"
	"slices"
	"strings"
)

// Formats of logs.
const (
	Combined  = "combined"  // of nginx and Apache, also without the last two fields
	JSON      = "json"      // one object per line
	CSV       = "csv"       // with names in the first line
	Envoy     = "envoy"     // Envoy's default
	Decisions = "decisions" // the decision log of a node
)

// Formats lists the values of Config.Format.
var Formats = []string{Combined, JSON, CSV, Envoy, Decisions}

// fault is why a line was not replayed.
type fault int

const (
	fine   fault = iota
	blank        // nothing in it; not counted
	header       // it names the columns; not counted
	broken       // not of the format
	noTime       // the instant is missing, or none
	hashed       // a decision log whose values are hashes
	notADecision
	ahead // far ahead of its time
	faults
)

var faultNames = [faults]string{broken: "broken", noTime: "no_time", hashed: "hashed", notADecision: "not_decided", ahead: "ahead"}

// parser reads the lines of one log after another.
type parser interface {
	// begin is called before the first line of each log.
	begin()
	// parse reads a line into r, whose values have room for all fields. Values that are missing stay empty.
	parse(line []byte, r *record) fault
}

// newParser returns the parser of a format. The error names a field that the format does not have.
func newParser(format string, wanted fields, timeField string) (parser, error) {
	known := knownFields[format]
	for _, name := range wanted {
		if known != nil && !slices.Contains(known, name) {
			return nil, fmt.Errorf("format %s has no field %q; it has %s", format, name, strings.Join(known, ", "))
		}
	}
	switch format {
	case Combined:
		return newCombined(wanted), nil
	case Envoy:
		return newEnvoy(wanted), nil
	case JSON:
		return newJSONLines(wanted, timeField), nil
	case CSV:
		return newCSV(wanted, timeField), nil
	case Decisions:
		return &decisions{}, nil
	}
	return nil, fmt.Errorf("format %q is not one of %s", format, strings.Join(Formats, ", "))
}

// knownFields are those of formats that say which they have.
var knownFields = map[string][]string{Combined: combinedFields, Envoy: envoyFields, Decisions: {}}
