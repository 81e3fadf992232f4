package rules

import (
	"testing"
)

func TestSpecIsOwn(t *testing.T) {
	set := parse(t, everything)
	before := set.Hash()
	for r := range set.Rules() {
		s := r.Spec()
		for _, c := range s.When {
			for i := range c.AnyOf {
				c.AnyOf[i] = "changed"
			}
		}
		for _, per := range s.Per {
			per[0] = "changed"
		}
		for i := range s.Replaces {
			s.Replaces[i] = "changed"
		}
		if s.Enforce != nil {
			*s.Enforce = 77
		}
	}
	if got := hashOf(set.rules, Options{}, nil); got != before {
		t.Error("a Spec shares memory with its Rule")
	}
}
