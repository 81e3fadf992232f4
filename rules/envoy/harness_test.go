package envoy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
)

var testHasher = ring.NewHasher([ring.SecretSize]byte{1})

// parse returns the set of a document that has no problems.
func parse(t testing.TB, text string) *rules.Set {
	t.Helper()
	set, err := rules.Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return set
}

// refused checks that a text has just these problems.
func refused(t *testing.T, text, want string) {
	t.Helper()
	if _, err := rules.Parse("f.yaml", []byte(text)); err == nil || err.Error() != want {
		t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
	}
}

// ruleNames returns the domains and ids of a set's rules.
func ruleNames(set *rules.Set) string {
	var names []string
	for r := range set.Rules() {
		names = append(names, fmt.Sprint(r.Domain, "/", r.ID))
	}
	return strings.Join(names, " ")
}
