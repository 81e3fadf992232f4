package ui

import (
	"testing"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

func TestURLOfARule(t *testing.T) {
	v := viewOf(&weirv1.RateLimit{Domain: "a b", Id: "login/<x>?", Rule: &weirv1.Rule{}})
	if v.URL() != "/ui/rules/a%20b/login/%3Cx%3E%3F" || v.EditURL() != "/ui/edit-rule/a%20b/login/%3Cx%3E%3F" || v.ChangeURL() != "/ui/change-rule/a%20b/login/%3Cx%3E%3F" {
		t.Errorf("%s, %s, %s", v.URL(), v.EditURL(), v.ChangeURL())
	}
}
