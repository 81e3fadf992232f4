package rules

import "testing"

// What people write who do not know YAML by heart, each in a rule from line 3 on.
func TestSyntaxProblems(t *testing.T) {
	const begin = "domain: d\nrules:\n"
	for _, c := range []struct{ rules, want string }{
		{"  - id: x\n    when:\n      endpoint: *\n", `f.yaml:5:17: not valid YAML: a value cannot begin with *; put it in quotes: "*"`},
		{"  - id: x\n    when: {endpoint: *, method: GET}\n", `f.yaml:4:22: not valid YAML: a value cannot begin with *; put it in quotes: "*"`},
		{"  - id: x\n    when: {method: [GET, *]}\n", `f.yaml:4:26: not valid YAML: a value cannot begin with *; put it in quotes: "*"`},
		{"  - id: x\n    when:\n      é: * # all\n", `f.yaml:5:10: not valid YAML: a value cannot begin with *; put it in quotes: "*"`},
		{"  - id: x\n    when:\n      endpoint: */posts\n", `f.yaml:5:17: not valid YAML: no anchor of this name stands before; a value cannot begin with *; put it in quotes: "*/posts"`},
		{"  - id: x\n    when:\n      endpoint: &\n", `f.yaml:5:17: not valid YAML: a value cannot begin with &; put it in quotes: "&"`},
		{"  - id: x\n    when: {user: @bob}\n", `f.yaml:4:18: not valid YAML: a value cannot begin with @; put it in quotes: "@bob"`},
		{"  - id: x\n    when: {user: `b\"o\\b`}\n", "f.yaml:4:18: not valid YAML: a value cannot begin with `; put it in quotes: '`b\"o\\b`'"},
		{"  - id: x\n    when:\n      user: %b\n", `f.yaml:5:13: not valid YAML: a value cannot begin with %; put it in quotes: "%b"`},
		{"  - id: x\n\twhen: {user: bob}\n", `f.yaml:4:1: not valid YAML: a tab cannot stand here; write spaces instead`},
		{"  - id: x\n    limits:\n    - limit: 5\n \twindow: 1s\n", `f.yaml:6:2: not valid YAML: a tab cannot stand here; write spaces instead`},
		{"  - id: x\n    when: {path: \"re:\\d+\"}\n", `f.yaml:4:22: not valid YAML: "\" begins an escape within double quotes, and this is none; write \\, or put the text in single quotes`},
		{"  - id: x\n    when: {user: \"bob}\n    per: [user]\n", `f.yaml:4:18: not valid YAML: the quote that begins here is not closed`},
		{"  - id: x\n    when: {user: 'it's'}\n", `f.yaml:4:11: not valid YAML: the mapping that begins here lacks a comma or its } before line 4, column 22`},
		{"  - id: x\n    per: [user\n    limits: []\n", `f.yaml:4:10: not valid YAML: the list that begins here lacks a comma or its ] before line 5, column 11`},
		{"  - id: x\n    limits: [\n  - id: y\n", `f.yaml:5:3: not valid YAML: a value is missing, or a bracket is not closed`},
		{"  - id: x: y\n", `f.yaml:3:10: not valid YAML: a value cannot contain a colon and a space; put it in quotes`},
		{"  - id:x\n    limits: []\n", `f.yaml:4:11: not valid YAML: a key cannot stand here; the line before may lack its colon or the space behind it, or this line is indented too far`},
		{"  - id: x\n     per: [user]\n", `f.yaml:4:9: not valid YAML: a key cannot stand here; the line before may lack its colon or the space behind it, or this line is indented too far`},
		{"  - id: x\n   per: [user]\n", `f.yaml:4:4: not valid YAML: the indentation fits nothing before; what begins in line 3 has its keys or items in column 3`},
		{"  id: x\n  - per: [user]\n", `f.yaml:4:3: not valid YAML: a list item cannot stand among the keys that begin in line 3`},
		{"  - id: x\n    when:\n      user: \"a\"b\n", `f.yaml:5:16: not valid YAML: a value has ended here; put all of it in quotes`},
		{"  - id: x\n    when:\n      user: - a\n", `f.yaml:5:13: not valid YAML: block sequence entries are not allowed in this context`},
	} {
		refused(t, begin+c.rules, c.want)
	}
}
