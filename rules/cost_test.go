package rules

import "testing"

func TestCost(t *testing.T) {
	const prefix = `attribute "size" is the cost of rule "r": `
	for _, c := range []struct {
		cost, size string
		tokens     int64
		want       int64
		err        string
	}{
		{"1", "", 3, 3, ""},
		{"7", "", 3, 21, ""},
		{"7", "", -3, -21, ""},
		{"0", "", 3, 0, ""},
		{"2147483648", "", 1, 2147483648, ""},
		{"size", "", 3, 3, ""},
		{"size", "size=5", 3, 15, ""},
		{"size", "size=5", 0, 0, ""},
		{"size", "size=5", -1, -5, ""},
		{"size", "size=0", 3, 0, ""},
		{"size", "size=2147483648", -1, -2147483648, ""},
		{"size", "size=2147483649", 1, 0, prefix + `"2147483649" is not a whole number between 0 and 2147483648`},
		{"size", "size=99999999999999999999", 1, 0, prefix + `"99999999999999999999" is not a whole number between 0 and 2147483648`},
		{"size", "size=", 1, 0, prefix + `"" is not a whole number between 0 and 2147483648`},
		{"size", "size=-1", 1, 0, prefix + `"-1" is not a whole number between 0 and 2147483648`},
		{"size", "size=1.5", 1, 0, prefix + `"1.5" is not a whole number between 0 and 2147483648`},
		{"size", "size=2147483648", 2, 0, prefix + `2147483648 times 2 tokens are more than 2147483648`},
		{"2147483648", "", 2147483648, 0, `the cost of rule "r": 2147483648 times 2147483648 tokens are more than 2147483648`},
		{"2147483648", "", -2, 0, `the cost of rule "r": 2147483648 times -2 tokens are more than 2147483648`},
		{"1", "", 2147483649, 0, `2147483649 tokens are not between -2147483648 and 2147483648`},
		{"0", "", -1 << 63, 0, `-9223372036854775808 tokens are not between -2147483648 and 2147483648`},
	} {
		set := parse(t, oneRule("{id: r, limits: [{limit: 1, window: 1s}], cost: "+c.cost+"}"))
		req := request("d")
		if c.size != "" {
			req = request("d", c.size)
		}
		rule := set.rules[0]
		got, err := rule.Cost(req, c.tokens)
		if got != c.want || (err != nil || c.err != "") && (err == nil || err.Error() != c.err) {
			t.Errorf("%d tokens at %s, %q: %d, %v, want %d, %s", c.tokens, c.cost, c.size, got, err, c.want, c.err)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = rule.Cost(req, c.tokens) }); n != 0 && err == nil {
			t.Errorf("%v allocations", n)
		}
	}
}
