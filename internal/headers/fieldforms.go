package headers

import (
	"fmt"
	"strings"
)

// Form is a set of header fields in which clients look for limits.
type Form int

// The forms. Of the first three, which share names, at most one is used.
const (
	// Draft is RateLimit-Policy and RateLimit, as structured fields:
	// draft-ietf-httpapi-ratelimit-headers, from its version 8 to version 11.
	Draft Form = iota
	// Draft7 is the form of version 7: RateLimit: limit=100, remaining=50, reset=30.
	Draft7
	// Draft6 is the form of version 6 and earlier: RateLimit-Limit, RateLimit-Remaining,
	// RateLimit-Reset.
	Draft6
	// XRateLimit is X-RateLimit-Limit, -Remaining and -Reset, and
	// X-Ratelimit-Retry-After, which never were a standard.
	XRateLimit
	forms // how many there are
)

var formNames = [forms]string{Draft: "draft", Draft7: "draft-7", Draft6: "draft-6", XRateLimit: "x-ratelimit"}

// String returns the form's name, such as "draft-7".
func (f Form) String() string {
	if f < 0 || f >= forms {
		return fmt.Sprintf("Form(%d)", int(f))
	}
	return formNames[f]
}

// ParseForms returns the forms of those names: one of the drafts, x-ratelimit, or both;
// or none for the name "none" alone.
func ParseForms(names []string) ([]Form, error) {
	if len(names) == 1 && names[0] == "none" {
		return nil, nil
	}
	var list []Form
	var seen [forms]bool
	draft := ""
	for _, name := range names {
		form := formOf(name)
		switch {
		case form == forms:
			return nil, fmt.Errorf("%q is not one of %s, none", name, strings.Join(formNames[:], ", "))
		case seen[form]:
			return nil, fmt.Errorf("%s stands there twice", name)
		case form != XRateLimit && draft != "":
			return nil, fmt.Errorf("%s and %s are forms of the same fields; allowed is one of them", draft, name)
		case form != XRateLimit:
			draft = name
		}
		seen[form] = true
		list = append(list, form)
	}
	return list, nil
}

// formOf returns the form of that name, forms if there is none.
func formOf(name string) Form {
	for f, n := range formNames {
		if n == name {
			return Form(f)
		}
	}
	return forms
}
