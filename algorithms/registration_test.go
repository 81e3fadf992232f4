package algorithms

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

// declared returns the constants of type Algorithm that algorithm.go declares, by name.
func declared(t *testing.T) map[string]Algorithm {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "algorithm.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]Algorithm)
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); !ok || typ.Name != "Algorithm" {
			return true
		}
		number, err := strconv.ParseUint(spec.Values[0].(*ast.BasicLit).Value, 10, 8)
		if err != nil {
			t.Fatal(err)
		}
		found[spec.Names[0].Name] = Algorithm(number)
		return true
	})
	return found
}

// TestEveryAlgorithmIsComplete names the place where an algorithm is missing.
func TestEveryAlgorithmIsComplete(t *testing.T) {
	constants := declared(t)
	if len(constants) < 7 {
		t.Fatalf("found the constants %v only", constants)
	}
	for name, a := range constants {
		if !a.known() {
			t.Errorf("%s: missing in registered, in algorithm.go", name)
			continue
		}
		for _, missing := range registered[a].missing() {
			t.Errorf("%s: %s", name, missing)
		}
		if twins[a] == nil {
			t.Errorf("%s: missing in twins, in twin_test.go", name)
		}
		if !a.Long() {
			checkStepInto(t, name, a)
		}
	}
	if all := All(); len(all) != len(constants) {
		t.Errorf("%v are registered, of the constants %v", all, constants)
	}
}

// checkStepInto asks both StepInto and what is registered for a look, a step that is allowed, and one that is denied.
func checkStepInto(t *testing.T, name string, a Algorithm) {
	t.Helper()
	l := &Limit{Algorithm: a, Limit: 3, Window: int64(time.Second)}
	var s State
	for i, cost := range []int64{0, 2, 2, 0} {
		var d, want Decision
		var next State
		now := l.Window + int64(i)*l.Window/4
		if message := panics(func() { next = StepInto(&d, l, s, now, cost) }); message != "" {
			t.Errorf("%s: missing in StepInto, in step.go: %s", name, message)
			return
		}
		if expected := registered[a].state.step(l, s, now, cost, &want); next != expected || d != want {
			t.Errorf("%s: its case of StepInto, in step.go, is not the step of its registration: %+v, %+v", name, d, want)
			return
		}
		s = next
	}
}

// TestTraitForgets compares the trait with what a counter does: one that was filled at the end of a window has all of its
// room again a nanosecond later, or not.
func TestTraitForgets(t *testing.T) {
	for _, a := range All() {
		l := Limit{Algorithm: a, Limit: 10, Window: int64(time.Minute)}
		var c counter
		end := 1000 * l.Window
		if !c.step(&l, end-1, l.Limit).Allowed {
			t.Fatalf("%v: a fresh counter has no room", a)
		}
		if forgets := c.step(&l, end, l.Limit).Allowed && c.look(&l, end, 1).Delay == 0; forgets != a.Forgets() {
			t.Errorf("%v: its registration has the trait forgets: %t, but its counter forgets: %t", a, a.Forgets(), forgets)
		}
	}
}

// missing lists what a registration lacks.
func (r *registration) missing() (missing []string) {
	note := func(wrong bool, format string, args ...any) {
		if wrong {
			missing = append(missing, fmt.Sprintf(format, args...))
		}
	}
	note((r.state == nil) == (r.long == nil), "its registration needs state or long, and not both")
	note(r.most < 1 || r.most > MaxLimit, "its registration has most: %d, which is not between 1 and %d", r.most, int64(MaxLimit))
	note(r.traits&queues != 0 && r.traits&drains == 0, "its registration has the trait queues without drains")
	note(r.traits&subWindows != 0 && r.long == nil, "its registration has the trait subWindows, which is of a Long only")
	note(r.traits&isLong != 0, "its registration has the trait isLong, which follows from long")
	guide := reflect.ValueOf(r.guide)
	for i := range guide.NumField() {
		field, text := guide.Type().Field(i).Name, guide.Field(i).String()
		note(strings.ContainsAny(text, "\n|"), "Guide.%s is no cell of a table: %q", field, text)
		if field == "Entries" {
			note((text != "") != (r.long != nil), "Guide.Entries is %q, but it is for a Long, and only for that", text)
		} else {
			note(text == "", "Guide.%s is missing", field)
		}
	}
	return missing
}

// panics returns what f panics with, or nothing.
func panics(f func()) (message string) {
	defer func() {
		if p := recover(); p != nil {
			message = fmt.Sprint(p)
		}
	}()
	f()
	return ""
}

func TestMissingIsNamed(t *testing.T) {
	whole := registered[SlidingWindow]
	for _, tc := range []struct {
		change func(*registration)
		want   string
	}{
		{func(*registration) {}, "[]"},
		{func(r *registration) { r.state = nil }, "[its registration needs state or long, and not both]"},
		{func(r *registration) { r.most = 0 }, "[its registration has most: 0, which is not between 1 and 2147483648]"},
		{func(r *registration) { r.traits = queues }, "[its registration has the trait queues without drains]"},
		{func(r *registration) { r.traits = subWindows }, "[its registration has the trait subWindows, which is of a Long only]"},
		{func(r *registration) { r.guide.Choose = "" }, "[Guide.Choose is missing]"},
		{func(r *registration) { r.guide.GoodFor = "a|b" }, `[Guide.GoodFor is no cell of a table: "a|b"]`},
	} {
		r := whole
		tc.change(&r)
		if got := fmt.Sprint(r.missing()); got != tc.want {
			t.Errorf("got %s, want %s", got, tc.want)
		}
	}
}
