package envoy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/rules"
)

// What scalars of a file mean is what they meant to envoyproxy/ratelimit in July 2026, when
// that was run with them: requests_per_unit and value, or what keeps the file from loading.
func TestDescriptorScalars(t *testing.T) {
	for _, c := range []struct{ requests, value, want string }{
		{"5", "v", "5 v"},
		{"+5", "v", "5 v"},
		{"-0", "v", "0 v"},
		{"1_000", "v", "1000 v"},
		{"010", "v", "8 v"},
		{"0x10", "v", "16 v"},
		{"0b11", "v", "3 v"},
		{"0o17", "v", "15 v"},
		{`!!int "5"`, "v", "5 v"},
		{"5", "+5", "5 +5"},
		{"5", "010", "5 010"},
		{"5", "-0", "5 -0"},
		{"5", "2001-01-01", "5 2001-01-01"},
		{"5", "!!str 5", "5 5"},
		{"5", "!foo x", "5 x"},
		{"5", "!!binary aGVsbG8=", "5 hello"},
		{"5", `!!binary "@@"`, `value: error loading config file: "@@" is tagged !!binary and not base64`},
		{`"5"`, "v", `"5" is not a whole number between 0 and 4294967295`},
		{"5.0", "v", `"5.0" is not a whole number`},
		{"1e3", "v", `"1e3" is not a whole number`},
		{"-5", "v", `"-5" is not a whole number`},
		{"12:30", "v", `"12:30" is not a whole number`},
		{"4294967296", "v", `"4294967296" is not a whole number`},
		// There it loads, and no request that arrives can have such a value.
		{"5", "!!binary /w==", `value: "/w==" stands for "\xff", which is not UTF-8, and no request has such a text`},
	} {
		text := oneDescriptor(fmt.Sprintf("{key: k, value: %s, rate_limit: {unit: day, requests_per_unit: %s}}", c.value, c.requests))
		set, err := rules.Parse("f.yaml", []byte(text))
		if err != nil {
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, %s: %v\nwant %s", c.requests, c.value, err, c.want)
			}
			continue
		}
		for r := range set.Rules() {
			if got := fmt.Sprint(r.Descriptor.Requests, " ", strings.TrimPrefix(r.ID, "k_")); got != c.want {
				t.Errorf("%s, %s: %s, want %s", c.requests, c.value, got, c.want)
			}
		}
	}
}
