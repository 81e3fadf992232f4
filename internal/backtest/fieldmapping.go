package backtest

import (
	"fmt"
	"slices"
	"strings"
)

// Mapping says where the value of an attribute stands in a line.
type Mapping struct {
	// Attribute names the attribute of the request.
	Attribute string
	// Field is the log's field; empty if Value is the same in all lines.
	Field string
	Value string
}

// ParseMapping reads ATTRIBUTE=$FIELD or ATTRIBUTE=VALUE.
func ParseMapping(text string) (Mapping, error) {
	attribute, value, found := strings.Cut(text, "=")
	if !found || attribute == "" || value == "" || value == "$" {
		return Mapping{}, fmt.Errorf("%q is not ATTRIBUTE=$FIELD, such as user=$remote_user", text)
	}
	if field, isField := strings.CutPrefix(value, "$"); isField {
		return Mapping{Attribute: attribute, Field: field}, nil
	}
	return Mapping{Attribute: attribute, Value: value}, nil
}

// defaultMaps are what a format's fields mean if nothing else is said.
var defaultMaps = map[string][]Mapping{
	Combined: {{Attribute: "ip", Field: "remote_addr"}, {Attribute: "user", Field: "remote_user"}, {Attribute: "method", Field: "request_method"}, {Attribute: "endpoint", Field: "path"}},
	Envoy:    {{Attribute: "ip", Field: "x_forwarded_for"}, {Attribute: "method", Field: "method"}, {Attribute: "endpoint", Field: "path"}},
	JSON:     {{Attribute: "ip", Field: "ip"}, {Attribute: "user", Field: "user"}, {Attribute: "method", Field: "method"}, {Attribute: "endpoint", Field: "endpoint"}},
	CSV:      {{Attribute: "ip", Field: "ip"}, {Attribute: "user", Field: "user"}, {Attribute: "method", Field: "method"}, {Attribute: "endpoint", Field: "endpoint"}},
}

// DefaultMap returns what the fields of a format mean unless they are mapped.
func DefaultMap(format string) []Mapping { return slices.Clone(defaultMaps[format]) }
