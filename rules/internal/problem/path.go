package problem

import (
	"strconv"
	"strings"
)

// NameBytes may stand in every name, and in a Path without quotes.
const NameBytes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"

// Path is the way to a node: a rule's id, if it has one, and the fields from there.
type Path struct{ Rule, Field string }

// Key returns the path to the value of a key.
func (p Path) Key(name string) Path {
	if name == "" || strings.Trim(name, NameBytes) != "" {
		p.Field += "[" + Quote(name) + "]"
		return p
	}
	if p.Field != "" {
		p.Field += "."
	}
	p.Field += name
	return p
}

// Index returns the path to an element of a list.
func (p Path) Index(i int) Path {
	p.Field += "[" + strconv.Itoa(i) + "]"
	return p
}
