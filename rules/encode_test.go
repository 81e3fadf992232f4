package rules

import (
	"os"
	"testing"
)

// Format writes what it reads, and its own text to the letter.
func TestFormat(t *testing.T) {
	set := parse(t, everything)
	got, err := Format(set.Documents())
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != everything {
		t.Errorf("got\n%s\nwant\n%s", got, everything)
	}
	if again := parse(t, string(got)); again.Hash() != set.Hash() {
		t.Errorf("hash %s, want %s", again.Hash(), set.Hash())
	}
}

func TestFormatExamples(t *testing.T) {
	for _, name := range []string{"../deploy/examples/quickstart.yaml", "../deploy/examples/gateway-rules.yaml"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		set := parse(t, string(text))
		formatted, err := Format(set.Documents())
		if again := parse(t, string(formatted)); err != nil || again.Hash() != set.Hash() {
			t.Errorf("%s: hash %s becomes %s, %v", name, set.Hash(), again.Hash(), err)
		}
	}
}

func TestFormatNothing(t *testing.T) {
	for _, docs := range [][]Document{nil, {{Domain: "default"}}} {
		text, err := Format(docs)
		if want := "domain: default\nrules: []\n"; err != nil || string(text) != want {
			t.Errorf("%q, %v, want %q", text, err, want)
		}
	}
	if docs := parse(t, "domain: d\nrules: []\n").Documents(); docs != nil {
		t.Errorf("no rules are %v", docs)
	}
}

func TestFormatRefusesBytes(t *testing.T) {
	_, err := Format([]Document{{Domain: "d", Rules: []Spec{{ID: "\xff"}}}})
	if want := `format rules of domain "d": "\xff" is not valid UTF-8`; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
