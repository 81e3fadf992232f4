package rules

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// bound is a row of the table "Rules" in docs/reference/bounds.md.
type bound struct {
	what, most string
	size       int
	says       string           // a part of what is said of one more
	of         func(int) string // a file with that number of them
}

// times returns n texts of that form with commas in between.
func times(form string, n int) string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf(form, i)
	}
	return strings.Join(texts, ", ")
}

// ruleWith is a file with a rule that has a field.
func ruleWith(field string) string {
	return "domain: d\nrules: [{id: r, limits: [{limit: 1, window: 1s}], " + field + "}]\n"
}

// descriptorWith is a file with a descriptor that has a field.
func descriptorWith(fields string) string {
	return "domain: d\ndescriptors: [{rate_limit: {unit: hour, requests_per_unit: 1}, " + fields + "}]\n"
}

var bounds = []bound{
	{"Bytes of a file", "4,194,304", maxFileSize, "more than 4194304", func(n int) string {
		text := ruleWith("enforce: 100")
		return text + strings.Repeat("#", n-len(text))
	}},
	{"Rules of a set", "100,000", maxRules, "100000", func(n int) string {
		var file strings.Builder
		file.WriteString("domain: d\nrules:\n")
		for i := range n {
			fmt.Fprintf(&file, "- {id: r%d, unlimited: true}\n", i)
		}
		return file.String()
	}},
	{"Different calendars of a set", "1,024", maxCalendars, "1024", func(n int) string {
		zones := strings.Fields("UTC Europe/Paris Europe/Berlin Europe/Rome Europe/Madrid Europe/Vienna Europe/Oslo Asia/Tokyo Asia/Seoul Asia/Dubai Asia/Kolkata " +
			"Asia/Singapore Asia/Manila America/New_York America/Chicago America/Denver America/Lima America/Bogota Africa/Cairo Africa/Lagos Africa/Nairobi")
		var file strings.Builder
		file.WriteString("domain: d\nrules:\n")
		for i := range n {
			unit, anchor := "month", i%50+1 // each zone has 31 of months, 12 of years, and 7 of weeks
			if anchor > 31 {
				unit, anchor = "year", anchor-31
			}
			if anchor > 12 && unit == "year" {
				unit, anchor = "week", anchor-12
			}
			fmt.Fprintf(&file, "- {id: r%d, limits: [{limit: 1, window: {calendar: %s, timezone: %s, anchor: %d}, algorithm: fixed_window}]}\n", i, unit, zones[i/50], anchor)
		}
		return file.String()
	}},
	{"Conditions of a rule", "16", maxConditions, "more than 16", func(n int) string { return ruleWith("when: {" + times("a%d: v", n) + "}") }},
	{"Values of a condition", "256", maxList, "256", func(n int) string { return ruleWith("when: {a: [" + times("v%d", n) + "]}") }},
	{"Bytes of such a value", "256", maxValue, "257 bytes", func(n int) string { return ruleWith("when: {a: " + strings.Repeat("v", n) + "}") }},
	{"Bytes of an expression", "1,024", maxRegexp, "1024", func(n int) string { return ruleWith("when: {a: 're:[" + strings.Repeat("v", n-2) + "]'}") }},
	{"Instructions of an expression, compiled", "1,000", maxInstructions, "more than 1000", func(n int) string {
		return ruleWith("when: {a: 're:" + strings.Repeat("v", n-2) + "'}") // the first one fails, and the last one matches
	}},
	{"Attributes of a set in `per`", "16", maxPer, "16", func(n int) string { return ruleWith("per: [" + times("a%d", n) + "]") }},
	{"Sets in `per`", "8", maxPerSets, "8", func(n int) string { return ruleWith("per: [" + times("[a%d]", n) + "]") }},
	{"Limits of a rule", "8", maxLimits, "8", func(n int) string {
		return "domain: d\nrules: [{id: r, limits: [" + times("{limit: 1, window: 1%d0s}", n) + "]}]\n"
	}},
	{"Rules that a rule replaces", "64", maxReplaces, "64", func(n int) string {
		return "domain: d\nrules: [{id: r, replaces: [" + times("r%d", n) + "], unlimited: true, when: {a: v}}, " + times("{id: r%d, unlimited: true}", n) + "]\n"
	}},
	{"Descriptors of a set", "100,000", 100_000, "100000 descriptors", func(n int) string {
		var file strings.Builder
		file.WriteString("domain: d\ndescriptors:\n")
		for i := range n {
			fmt.Fprintf(&file, "- {key: k, value: v%d}\n", i)
		}
		return file.String()
	}},
	{"Descriptors one in the other", "16", 16, "16", func(n int) string {
		return "domain: d\n" + strings.Repeat("descriptors: [{key: k, ", n) + "rate_limit: {unit: hour, requests_per_unit: 1}" + strings.Repeat("}]", n) + "\n"
	}},
	{"Bytes of a descriptor's key", "1,024", 1024, "1024", func(n int) string { return descriptorWith("key: " + strings.Repeat("k", n)) }},
	{"Bytes of a descriptor's value", "1,024", 1024, "1024", func(n int) string { return descriptorWith("key: k, value: " + strings.Repeat("v", n)) }},
}

// A set of rules has what docs/reference/bounds.md says, and is refused with one more.
func TestDocumentedBounds(t *testing.T) {
	doc, err := os.ReadFile("../docs/reference/bounds.md")
	if err != nil {
		t.Fatal(err)
	}
	table := "| Rules | At most | One more |\n| --- | --- | --- |\n"
	for _, b := range bounds {
		table += fmt.Sprintf("| %s | %s | the rules are refused |\n", b.what, b.most)
		if _, err := Parse("f.yaml", []byte(b.of(b.size))); err != nil {
			t.Errorf("%s: %d: %.300s", b.what, b.size, err)
		}
		if _, err := Parse("f.yaml", []byte(b.of(b.size+1))); err == nil || !strings.Contains(err.Error(), b.says) {
			t.Errorf("%s: %d: %.300v, want an error that says %q", b.what, b.size+1, err, b.says)
		}
		if got := strings.ReplaceAll(b.most, ",", ""); got != fmt.Sprint(b.size) {
			t.Errorf("%s: %s in the table, the test asks for %d", b.what, b.most, b.size)
		}
	}
	if !strings.Contains(string(doc), table) {
		t.Errorf("docs/reference/bounds.md has not this table:\n%s", table)
	}
}
