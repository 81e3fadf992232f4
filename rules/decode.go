package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimit/weir/rules/internal/problem"
	"github.com/weirlimit/weir/rules/internal/yamlnode"
)

// decoder reads the YAML nodes of one file and notes every problem with its
// position. It never stops at one.
type decoder struct {
	*loader
	file string
}

func (d *decoder) problem(n *yaml.Node, at problem.Path, format string, args ...any) {
	d.problems.Add(d.at(n, at, format, args...))
}

func (d *decoder) at(n *yaml.Node, at problem.Path, format string, args ...any) Problem {
	return problem.At(d.file, n, at, format, args...)
}

// plain refuses what makes YAML mean more than it shows. Aliases could also blow
// a small file up.
func (d *decoder) plain(n *yaml.Node, at problem.Path) bool {
	switch {
	case n.Kind == yaml.AliasNode:
		d.problem(n, at, "an alias is not allowed; write out what %s stands for", problem.Quote("*"+n.Value))
	case n.Anchor != "":
		d.problem(n, at, "an anchor is not allowed; leave out %s", problem.Quote("&"+n.Anchor))
	case n.Style&yaml.TaggedStyle != 0:
		d.problem(n, at, "a tag is not allowed; leave out %s", problem.Quote(n.Tag))
	default:
		return true
	}
	return false
}

// is says whether n is of a kind that allows all there is; want names it with
// its article.
func (d *decoder) is(n *yaml.Node, kind yaml.Kind, at problem.Path, want string) bool {
	if !d.plain(n, at) {
		return false
	}
	switch {
	case n.Kind == kind && !yamlnode.IsNull(n):
		return true
	case yamlnode.IsNull(n):
		d.problem(n, at, "is empty, not %s", want)
	case n.Kind == yaml.MappingNode:
		d.problem(n, at, "is a mapping, not %s", want)
	case n.Kind == yaml.SequenceNode:
		d.problem(n, at, "is a list, not %s", want)
	default:
		d.problem(n, at, "%s is not %s", problem.Quote(n.Value), want)
	}
	return false
}

// kinds names what YAML takes unquoted scalars for.
var kinds = map[string]string{
	"!!int": "a number", "!!float": "a number", "!!bool": "a boolean",
	"!!timestamp": "a date", "!!merge": "a merge key",
}

// text reads a scalar that is text without any doubt.
func (d *decoder) text(n *yaml.Node, at problem.Path) (string, bool) {
	if !d.is(n, yaml.ScalarNode, at, "text") {
		return "", false
	}
	if kind, other := kinds[n.Tag]; other {
		d.problem(n, at, "%s is %s, not text; put it in quotes", problem.Quote(n.Value), kind)
		return "", false
	}
	if !utf8.ValidString(n.Value) { // as a caller of Compile may have it
		d.problem(n, at, "%s is not valid UTF-8", problem.Quote(n.Value))
		return "", false
	}
	return n.Value, true
}

// whole reads a decimal number from least to most.
func (d *decoder) whole(n *yaml.Node, at problem.Path, least, most int64) int64 {
	if !d.is(n, yaml.ScalarNode, at, "a whole number") {
		return 0
	}
	value, err := strconv.ParseInt(n.Value, 10, 64)
	switch {
	case n.Tag == "!!str" && n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
		d.problem(n, at, "%s is text, not a whole number; leave out the quotes", problem.Quote(n.Value))
	case !isWhole(n.Value):
		d.problem(n, at, "%s is not a whole number; write decimal digits only, such as 100", problem.Quote(n.Value))
	case err != nil || n.Value[0] == '-' || value < least || value > most:
		d.problem(n, at, "%s is not between %d and %d", problem.Quote(n.Value), least, most)
	}
	return value
}

// choice reads a text that is one of names; what says what they are, with its
// article.
func (d *decoder) choice(n *yaml.Node, at problem.Path, what string, names []string) string {
	s, ok := d.text(n, at)
	if !ok || slices.Contains(names, s) {
		return s
	}
	hint := ""
	if near := problem.Nearest(s, names); near != "" {
		hint = fmt.Sprintf("; did you mean %s?", problem.Quote(near))
	}
	d.problem(n, at, "%s is not %s; known are %s%s", problem.Quote(s), what, strings.Join(names, ", "), hint)
	return ""
}

func (d *decoder) boolean(n *yaml.Node, at problem.Path) bool {
	const want = "true or false"
	if d.is(n, yaml.ScalarNode, at, want) && (n.Tag != "!!bool" || n.Value != "true" && n.Value != "false") {
		d.problem(n, at, "%s is not %s", problem.Quote(n.Value), want)
	}
	return n.Value == "true"
}

// list calls each for the elements of a list of least to most elements.
func (d *decoder) list(n *yaml.Node, at problem.Path, least, most int, each func(n *yaml.Node, at problem.Path)) {
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
		each(e, at.Index(i))
	}
}

// firstIn ends a sentence on what stands somewhere twice.
func firstIn(line int) string {
	if line == 0 { // not from a file
		return ""
	}
	return fmt.Sprintf(", first in line %d", line)
}

// distinct is list for texts of which none may stand twice.
func (d *decoder) distinct(n *yaml.Node, at problem.Path, least, most int, each func(n *yaml.Node, at problem.Path, s string)) {
	lines := make(map[string]int)
	d.list(n, at, least, most, func(n *yaml.Node, at problem.Path) {
		s, ok := d.text(n, at)
		if !ok {
			return
		}
		if line, twice := lines[s]; twice {
			d.problem(n, at, "%s stands here twice%s", problem.Quote(s), firstIn(line))
			return
		}
		lines[s] = n.Line
		each(n, at, s)
	})
}

// mapping calls each for the entries of a mapping whose keys are texts, of which
// none stands twice.
func (d *decoder) mapping(n *yaml.Node, at problem.Path, each func(key, value *yaml.Node)) bool {
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
			d.problem(key, at, "key %s stands here twice%s", problem.Quote(key.Value), firstIn(line))
			continue
		}
		lines[key.Value] = key.Line
		each(key, value)
	}
	return true
}

// keyReader reads one key that a mapping may have.
type keyReader[T any] struct {
	name     string
	required bool
	read     func(d *decoder, n *yaml.Node, at problem.Path, into *T)
}

// readMapping reads a mapping that has these keys and no others.
func readMapping[T any](d *decoder, n *yaml.Node, at problem.Path, known []keyReader[T], into *T) {
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
				f.read(d, value, at.Key(f.name), into)
				return
			}
		}
		if near := problem.Nearest(key.Value, names); near != "" {
			missing[near] = false // it is there, with a typo
			d.problem(key, at, "unknown key %s; did you mean %s?", problem.Quote(key.Value), problem.Quote(near))
		} else {
			d.problem(key, at, "unknown key %s; known are %s", problem.Quote(key.Value), strings.Join(names, ", "))
		}
	})
	for _, name := range names {
		if ok && missing[name] {
			d.problem(n, at.Key(name), "is missing")
		}
	}
}
