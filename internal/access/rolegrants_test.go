package access

import (
	"strings"
	"testing"
)

func TestParseGrants(t *testing.T) {
	for text, want := range map[string]string{ // what is wrong with it, or nothing
		"check":                                "",
		"check:shop,rules:shop/a,admin":        "",
		"":                                     `role "" is none of`,
		"peer":                                 `role "peer" is none of`,
		"public":                               `role "public" is none of`,
		"check,":                               `role "" is none of`,
		"admin:shop":                           "admin has no domain",
		"metrics:shop":                         "metrics has no domain",
		"check:":                               `domain "" is not`,
		"check:a b":                            `domain "a b" is not`,
		strings.Repeat("check,", 64) + "rules": "65 roles are more than 64",
		strings.Repeat("x", 2049):              "2049 bytes",
	} {
		grants, err := ParseGrants(text)
		if want == "" && (err != nil || FormatGrants(grants) != text) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.80q: %v %v, want %q", text, grants, err, want)
		}
	}
}
