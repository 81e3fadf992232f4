package prose

import "regexp"

// Phrase is one that Weir's pages avoid, because readers misunderstand it or read it twice.
type Phrase struct {
	Name    string // by which it is counted
	Pattern *regexp.Regexp
	Instead string // what to write
}

// Phrases are the banned ones. Questions may begin with "who".
var Phrases = []Phrase{
	phrase("whoever", `whoever|whomever|whatever|whichever`, "name the subject: the owner, the caller, the node"),
	phrase("who as a subject", `(?:of|to|for|from|by|and|but|or|that|if|when|then|as|,|;) who (?:does|do|is|has|have|was|cannot|can|asks|wants|leaves|waits|comes|holds|gets|owns)`,
		"name the subject: the owner, the caller, the node"),
	phrase("nobody", `nobody|somebody|anybody`, "say which node, caller or operator"),
	phrase("anew", `anew|afresh`, "again, from the start, new"),
	phrase("beside", `beside (?:that|it|them|these|which)`, "in addition to, with"),
	phrase("but for", `but for`, "except"),
	phrase("let through", `let(?:s|ting)? (?:nothing |something |much )?through|is let pass|let pass`, "allowed, admitted; or: limits are not exceeded"),
	phrase("takes note", `takes? note`, "records, stores"),
	phrase("so many", `so (?:many|much|long|often) (?:times|as|of)`, "give the number, or write a formula"),
	phrase("bears witness", `bears? (?:no )?witness`, "confirms the decision lease"),
	phrase("at home", `at home`, "valid"),
	phrase("Decided:", `decided(?: later)?:`, "the title is the decision; the section is called Decision"),
}

func phrase(name, pattern, instead string) Phrase {
	return Phrase{name, regexp.MustCompile(`(?i)(?:^|[^\p{L}])(` + pattern + `)(?:[^\p{L}]|$)`), instead}
}

// Found is a banned phrase in a text.
type Found struct {
	Phrase
	Text string
}

// Banned returns the banned phrases of a text.
func Banned(text string) []Found { return banned(text, Phrases) }

func banned(text string, phrases []Phrase) (found []Found) {
	for _, p := range phrases {
		for _, m := range p.Pattern.FindAllStringSubmatch(text, -1) {
			found = append(found, Found{p, m[1]})
		}
	}
	return found
}
