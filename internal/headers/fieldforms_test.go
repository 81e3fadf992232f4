package headers

import (
	"strings"
	"testing"
)

func TestParseForms(t *testing.T) {
	for _, tc := range []struct{ names, want, err string }{
		{"draft", "draft", ""},
		{"draft x-ratelimit", "draft x-ratelimit", ""},
		{"x-ratelimit draft-6", "x-ratelimit draft-6", ""},
		{"draft-7", "draft-7", ""},
		{"none", "", ""},
		{"", "", ""},
		{"draft-8", "", `"draft-8" is not one of draft, draft-7, draft-6, x-ratelimit, none`},
		{"draft none", "", `"none" is not one of draft, draft-7, draft-6, x-ratelimit, none`},
		{"draft-6 draft-7", "", `draft-6 and draft-7 are forms of the same fields; allowed is one of them`},
		{"x-ratelimit x-ratelimit", "", `x-ratelimit stands there twice`},
	} {
		forms, err := ParseForms(strings.Fields(tc.names))
		var got []string
		for _, f := range forms {
			got = append(got, f.String())
		}
		if strings.Join(got, " ") != tc.want || (err == nil) != (tc.err == "") || err != nil && err.Error() != tc.err {
			t.Errorf("%s: %v, %v", tc.names, forms, err)
		}
	}
	if got := Form(9).String(); got != "Form(9)" {
		t.Error(got)
	}
}
