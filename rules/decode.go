package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// decoder reads the YAML nodes of one file and notes every problem with its
// position. It never stops at one.
type decoder struct {
	*loader
	file string
}

// path is the way to a node: a rule's id, if it has one, and the fields from
// there.
type path struct{ rule, field string }

func (p path) key(name string) path {
	if name == "" || strings.Trim(name, nameBytes) != "" {
		p.field += "[" + quote(name) + "]"
		return p
	}
	if p.field != "" {
		p.field += "."
	}
	p.field += name
	return p
}

func (p path) index(i int) path {
	p.field += "[" + strconv.Itoa(i) + "]"
	return p
}

func (d *decoder) problem(n *yaml.Node, at path, format string, args ...any) {
	d.problems.add(d.at(n, at, format, args...))
}

func (d *decoder) at(n *yaml.Node, at path, format string, args ...any) Problem {
	return Problem{
		File: d.file, Line: n.Line, Column: n.Column,
		Rule: at.rule, Field: at.field, Message: fmt.Sprintf(format, args...),
	}
}

// plain refuses what makes YAML mean more than it shows. Aliases could also blow
// a small file up.
func (d *decoder) plain(n *yaml.Node, at path) bool {
	switch {
	case n.Kind == yaml.AliasNode:
		d.problem(n, at, "an alias is not allowed; write out what %s stands for", quote("*"+n.Value))
	case n.Anchor != "":
		d.problem(n, at, "an anchor is not allowed; leave out %s", quote("&"+n.Anchor))
	case n.Style&yaml.TaggedStyle != 0:
		d.problem(n, at, "a tag is not allowed; leave out %s", quote(n.Tag))
	default:
		return true
	}
	return false
}

// is says whether n is of a kind that allows all there is; want names it with
// its article.
func (d *decoder) is(n *yaml.Node, kind yaml.Kind, at path, want string) bool {
	if !d.plain(n, at) {
		return false
	}
	switch {
	case n.Kind == kind && !isNull(n):
		return true
	case isNull(n):
		d.problem(n, at, "is empty, not %s", want)
	case n.Kind == yaml.MappingNode:
		d.problem(n, at, "is a mapping, not %s", want)
	case n.Kind == yaml.SequenceNode:
		d.problem(n, at, "is a list, not %s", want)
	default:
		d.problem(n, at, "%s is not %s", quote(n.Value), want)
	}
	return false
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// kinds names what YAML takes unquoted scalars for.
var kinds = map[string]string{
	"!!int": "a number", "!!float": "a number", "!!bool": "a boolean",
	"!!timestamp": "a date", "!!merge": "a merge key",
}

// text reads a scalar that is text without any doubt.
func (d *decoder) text(n *yaml.Node, at path) (string, bool) {
	if !d.is(n, yaml.ScalarNode, at, "text") {
		return "", false
	}
	if kind, other := kinds[n.Tag]; other {
		d.problem(n, at, "%s is %s, not text; put it in quotes", quote(n.Value), kind)
		return "", false
	}
	if !utf8.ValidString(n.Value) { // as a caller of Compile may have it
		d.problem(n, at, "%s is not valid UTF-8", quote(n.Value))
		return "", false
	}
	return n.Value, true
}

// whole reads a decimal number from least to most.
func (d *decoder) whole(n *yaml.Node, at path, least, most int64) int64 {
	if !d.is(n, yaml.ScalarNode, at, "a whole number") {
		return 0
	}
	value, err := strconv.ParseInt(n.Value, 10, 64)
	switch {
	case n.Tag == "!!str" && n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
		d.problem(n, at, "%s is text, not a whole number; leave out the quotes", quote(n.Value))
	case !isWhole(n.Value):
		d.problem(n, at, "%s is not a whole number; write decimal digits only, such as 100", quote(n.Value))
	case err != nil || n.Value[0] == '-' || value < least || value > most:
		d.problem(n, at, "%s is not between %d and %d", quote(n.Value), least, most)
	}
	return value
}

// choice reads a text that is one of names; what says what they are, with its
// article.
func (d *decoder) choice(n *yaml.Node, at path, what string, names []string) string {
	s, ok := d.text(n, at)
	if !ok || slices.Contains(names, s) {
		return s
	}
	hint := ""
	if near := nearest(s, names); near != "" {
		hint = fmt.Sprintf("; did you mean %s?", quote(near))
	}
	d.problem(n, at, "%s is not %s; known are %s%s", quote(s), what, strings.Join(names, ", "), hint)
	return ""
}

func (d *decoder) boolean(n *yaml.Node, at path) bool {
	const want = "true or false"
	if d.is(n, yaml.ScalarNode, at, want) && (n.Tag != "!!bool" || n.Value != "true" && n.Value != "false") {
		d.problem(n, at, "%s is not %s", quote(n.Value), want)
	}
	return n.Value == "true"
}

// list calls each for the elements of a list of least to most elements.
func (d *decoder) list(n *yaml.Node, at path, least, most int, each func(n *yaml.Node, at path)) {
	if !d.is(n, yaml.SequenceNode, at, "a list") {
		return
	}
	if len(n.Content) < least {
		d.problem(n, at, "is empty; write at least %d", least)
	}
	for i, e := range n.Content {
		if i == most {
			d.problem(e, at, "has %d elements, more than %d", len(n.Content), most)
			return
		}
		each(e, at.index(i))
	}
}

// firstIn ends a sentence on what stands somewhere twice.
func firstIn(line int) string {
	if line == 0 { // not from a file
		return ""
	}
	return fmt.Sprintf(", first in line %d", line)
}

// names is list for texts of which none may stand twice.
func (d *decoder) names(n *yaml.Node, at path, least, most int, each func(n *yaml.Node, at path, s string)) {
	lines := make(map[string]int)
	d.list(n, at, least, most, func(n *yaml.Node, at path) {
		s, ok := d.text(n, at)
		if !ok {
			return
		}
		if line, twice := lines[s]; twice {
			d.problem(n, at, "%s stands here twice%s", quote(s), firstIn(line))
			return
		}
		lines[s] = n.Line
		each(n, at, s)
	})
}

// mapping calls each for the entries of a mapping whose keys are texts, of which
// none stands twice.
func (d *decoder) mapping(n *yaml.Node, at path, each func(key, value *yaml.Node)) bool {
	if !d.is(n, yaml.MappingNode, at, "a mapping") {
		return false
	}
	lines := make(map[string]int)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if _, ok := d.text(key, at); !ok {
			continue
		}
		if line, twice := lines[key.Value]; twice {
			d.problem(key, at, "key %s stands here twice%s", quote(key.Value), firstIn(line))
			continue
		}
		lines[key.Value] = key.Line
		each(key, value)
	}
	return true
}

// field is one key that a mapping may have.
type field[T any] struct {
	name     string
	required bool
	read     func(d *decoder, n *yaml.Node, at path, into *T)
}

// fields reads a mapping that has these keys and no others.
func fields[T any](d *decoder, n *yaml.Node, at path, known []field[T], into *T) {
	missing := make(map[string]bool)
	names := make([]string, len(known))
	for i, f := range known {
		names[i] = f.name
		missing[f.name] = f.required
	}
	ok := d.mapping(n, at, func(key, value *yaml.Node) {
		missing[key.Value] = false
		for _, f := range known {
			if f.name == key.Value {
				f.read(d, value, at.key(f.name), into)
				return
			}
		}
		if near := nearest(key.Value, names); near != "" {
			missing[near] = false // it is there, with a typo
			d.problem(key, at, "unknown key %s; did you mean %s?", quote(key.Value), quote(near))
		} else {
			d.problem(key, at, "unknown key %s; known are %s", quote(key.Value), strings.Join(names, ", "))
		}
	})
	for _, name := range names {
		if ok && missing[name] {
			d.problem(n, at.key(name), "is missing")
		}
	}
}
