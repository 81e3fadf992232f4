package rules

import "testing"

func TestReferenceProblems(t *testing.T) {
	const limits = ", limits: [{limit: 1, window: 1s}]"
	elastic := func(parent string) string {
		return limits + ", mode: {elastic: {parent: " + parent + ", up_to: 150%}}"
	}
	for _, c := range []struct{ rules, want string }{
		{`- {id: r, replaces: [s]` + limits + `}`, `f.yaml:3:22: rule "r": replaces[0]: "s" is not a rule of domain "d"`},
		{`- {id: r, replaces: [r]` + limits + `}`, `f.yaml:3:22: rule "r": replaces[0]: "r" is the rule itself`},
		{"- {id: r, replaces: [s]" + limits + "}\n- {id: s, replaces: [t]" + limits + "}\n- {id: t, replaces: [r]" + limits + "}", `f.yaml:5:22: rule "t": replaces[0]: "r" leads back to this rule`},
		{"- {id: r, replaces: [s, t]" + limits + "}\n- {id: s, replaces: [t]" + limits + "}\n- {id: t, replaces: [u, s]" + limits + "}\n- {id: u" + limits + "}", `f.yaml:5:25: rule "t": replaces[1]: "s" leads back to this rule`},
		{"- {id: r, replaces: [x]" + limits + "}\n---\ndomain: e\nrules:\n- {id: x" + limits + "}", `f.yaml:3:22: rule "r": replaces[0]: "x" is not a rule of domain "d"`},
		{`- {id: r` + elastic("s") + `}`, `f.yaml:3:70: rule "r": mode.elastic.parent: "s" is not a rule of domain "d"`},
		{`- {id: r` + elastic("r") + `}`, `f.yaml:3:70: rule "r": mode.elastic.parent: "r" is the rule itself`},
		{"- {id: r" + elastic("s") + "}\n- {id: s" + elastic("r") + "}", `f.yaml:4:70: rule "s": mode.elastic.parent: "r" leads back to this rule`},
		{"- {id: r" + elastic("s") + "}\n- {id: s" + limits + ", enabled: false}", `f.yaml:3:70: rule "r": mode.elastic.parent: "s" is disabled; without a parent, the mode is hard`},
		{"- {id: r" + elastic("s") + "}\n- {id: s, unlimited: true}", `f.yaml:3:70: rule "r": mode.elastic.parent: "s" is unlimited; a parent has limits, which must have room`},
		{`- {id: "", replaces: [s]` + limits + `}`, `f.yaml:3:8: rules[0].id: "" has 0 bytes, not 1 to 128`},
	} {
		refused(t, "domain: d\nrules:\n"+c.rules+"\n", c.want)
	}
	// What is no circle.
	for _, rules := range []string{
		"- {id: r, replaces: [s, t]" + limits + "}\n- {id: s, replaces: [t]" + limits + "}\n- {id: t" + limits + "}",
		"- {id: r" + elastic("s") + ", replaces: [t]}\n- {id: s, replaces: [r]" + limits + "}\n- {id: t" + elastic("s") + "}",
		"- {id: r" + elastic("s") + ", enabled: false}\n- {id: s" + limits + ", enabled: false}",
	} {
		parse(t, "domain: d\nrules:\n"+rules+"\n")
	}
}
