package problem

import (
	"errors"
	"testing"
)

// The first ones are kept, in any order of arrival, and no more than needed.
func TestListKeepsFirst(t *testing.T) {
	var ps List
	for i := range 1000 {
		ps.Add(Problem{File: "f.yaml", Line: i*7%1000 + 1})
		if len(ps.list) >= 2*Max {
			t.Fatalf("%d are kept", len(ps.list))
		}
	}
	e, _ := errors.AsType[*LoadError](ps.Err())
	for i, p := range e.Problems {
		if p.Line != i+1 {
			t.Errorf("problem %d is that of line %d", i, p.Line)
		}
	}
	if len(e.Problems) != Max || e.More != 1000-Max {
		t.Errorf("%d problems and %d more", len(e.Problems), e.More)
	}
}
