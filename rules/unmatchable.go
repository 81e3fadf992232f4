package rules

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimit/weir/rules/internal/problem"
)

// This file refuses what no request can match, or name, although its syntax is good.

// unknownIP is what proxies write where they do not know an address (RFC 7239).
const unknownIP = "unknown"

// fieldsOfRequests are fields of requests that people take for attributes, and what to
// write instead.
var fieldsOfRequests = map[string]string{
	"identifier":      `for "identifier_type": "user" write user`,
	"identifier_type": `that the type is "user" is the condition user: "*"`,
}

// never notes what no request can match or name. Rules that stand in etcd already stay in force,
// with a warning: an earlier version has accepted them.
func (d *decoder) never(n *yaml.Node, at problem.Path, format string, args ...any) {
	if d.stored {
		d.warnings.Add(d.at(n, at, format, args...))
		return
	}
	d.problem(n, at, format, args...)
}

// pathName is name for what stands in the paths of the HTTP API, which cannot hold every name:
// clients and servers take some paths for others.
func (d *decoder) pathName(n *yaml.Node, at problem.Path, others string, most int) string {
	name := d.name(n, at, others, most)
	for segment := range strings.SplitSeq(name, "/") {
		if name != "" && (segment == "" || segment == "." || segment == "..") {
			d.never(n, at, "%s cannot stand in a path: between slashes is %s", problem.Quote(name), problem.Quote(segment))
			break
		}
	}
	return name
}

// requestField refuses a field of requests as the name of an attribute.
func (d *decoder) requestField(n *yaml.Node, at problem.Path, name string) {
	if instead, is := fieldsOfRequests[name]; is {
		d.never(n, at, "%s is a field of requests, not an attribute: the type names the attribute, whose value is the identifier; %s", problem.Quote(name), instead)
	}
}

// address refuses a pattern of addresses that fits none.
func (d *decoder) address(n *yaml.Node, at problem.Path, p pattern, s string) {
	const forms = "write an address, a block such as 10.0.0.0/8, or a prefix such as \"10.0.*\""
	switch {
	case p.kind == kindExact && s != unknownIP && !ValidIP(s):
		d.never(n, at, "%s is not an IP address; %s", problem.Quote(s), forms)
	case p.kind == kindPrefix && !onlyAddressBytes(p.text) && !strings.HasPrefix(unknownIP, p.text):
		d.never(n, at, "%s is not the beginning of an IP address; %s", problem.Quote(s), forms)
	}
}

// matchable refuses a rule, or a set of its attributes, that no request can match.
func (d *decoder) matchable(n *yaml.Node, at problem.Path, r *Rule) {
	for i, set := range r.Per {
		field := at.Key("per")
		if len(r.Per) > 1 {
			field = field.Index(i)
		}
		for _, c := range r.When {
			if c.Absent && slices.Contains(set, c.Attribute) {
				d.problem(n, field, "has %s, which when wants absent; no request would match", problem.Quote(c.Attribute))
			}
		}
	}
}
