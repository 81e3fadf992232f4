package envoy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/rules/envoy"
)

func TestUnits(t *testing.T) {
	for name, window := range map[string]time.Duration{
		"second": time.Second, "MINUTE": time.Minute, "Hour": time.Hour, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour,
		"month": 30 * 24 * time.Hour, "year": 365 * 24 * time.Hour,
	} {
		u := envoy.ParseUnit(name)
		if u == 0 || u.Window() != int64(window) || !strings.EqualFold(u.String(), name) {
			t.Errorf("%s: %v, %v", name, u, time.Duration(u.Window()))
		}
	}
	for _, name := range []string{"", "unknown", "fortnight", "seconds"} {
		if u := envoy.ParseUnit(name); u != 0 {
			t.Errorf("%q is %v", name, u)
		}
	}
	if envoy.Unit(99).Window() != 0 || envoy.Unit(99).String() != "unit(99)" {
		t.Error("unit 99")
	}
}
