package algorithms

import "testing"

func TestNamesParse(t *testing.T) {
	for _, name := range Names() {
		if a, ok := Parse(name); !ok || a.String() != name {
			t.Errorf("%s parses to %v, %v", name, a, ok)
		}
	}
	for _, name := range []string{"", "algorithm(0)", "sliding-window"} {
		if a, ok := Parse(name); ok {
			t.Errorf("%q parses to %v", name, a)
		}
	}
}
