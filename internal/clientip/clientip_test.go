package clientip

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var trusted = Proxies{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:1::/48")}

func TestClient(t *testing.T) {
	for _, tc := range []struct {
		peer      string
		forwarded []string
		want      string
	}{
		{"192.0.2.1:1", nil, "192.0.2.1"},
		{"192.0.2.1:1", []string{"198.51.100.1"}, "192.0.2.1"},
		{"10.0.0.1:1", nil, "10.0.0.1"},
		{"10.0.0.1:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"10.0.0.1:1", []string{"198.51.100.1, 203.0.113.1"}, "203.0.113.1"},
		{"10.0.0.1:1", []string{"198.51.100.1,10.0.0.2\t, 10.0.0.3:80"}, "198.51.100.1"},
		{"10.0.0.1:1", []string{"198.51.100.1", "10.0.0.2"}, "198.51.100.1"},
		{"10.0.0.1:1", []string{"198.51.100.1", "203.0.113.1"}, "203.0.113.1"},
		{"10.0.0.1:1", []string{"198.51.100.1, unknown"}, "10.0.0.1"},
		{"10.0.0.1:1", []string{"198.51.100.1, unknown, 10.0.0.2"}, "10.0.0.2"},
		{"10.0.0.1:1", []string{""}, "10.0.0.1"},
		{"10.0.0.1:1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"[2001:db8:1::1]:1", []string{"[2001:db8::7%eth0]:80"}, "2001:db8::7"},
		{"[::ffff:10.0.0.1]:1", []string{"::ffff:198.51.100.1"}, "198.51.100.1"},
		{"10.0.0.1", []string{"[2001:db8::7]"}, "2001:db8::7"},
		{"@", []string{"198.51.100.1"}, ""},
		{"", nil, ""},
	} {
		if got := trusted.Client(tc.peer, tc.forwarded, List); got != tc.want {
			t.Errorf("%s for %q: %q, want %q", tc.peer, tc.forwarded, got, tc.want)
		}
	}
}

// Entries that a client writes in front of those of the proxies change nothing.
func TestClientCannotChoose(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lie := rapid.StringMatching(`[0-9a-f.:, \[\]"]{0,40}`).Draw(t, "lie")
		hops := rapid.SliceOfN(rapid.SampledFrom([]string{"10.0.0.2", "10.9.9.9:80", "[2001:db8:1::5]"}), 0, 4).Draw(t, "hops")
		told := append([]string{lie, "198.51.100.1"}, hops...)
		cut := rapid.IntRange(0, len(told)).Draw(t, "cut")
		lines := []string{strings.Join(told[:cut], ", "), strings.Join(told[cut:], ", ")}
		lines = slices.DeleteFunc(lines, func(l string) bool { return l == "" })
		if got := trusted.Client("10.0.0.1:1", lines, List); got != "198.51.100.1" {
			t.Errorf("%q: %s", lines, got)
		}
	})
}
