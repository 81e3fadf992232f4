package shard

import (
	"testing"
	"testing/synctest"
	"time"
)

// Survey counts what Save has written, and what of it is over later.
func TestSurvey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShardOf(t, Config{Partitions: 1, MaxBytes: 64 << 20})
		day := perHour(10)
		day.Window = int64(24 * time.Hour)
		for i := range 50 {
			ask(s, key("hour", i), perHour(10), 10)
			ask(s, key("log", i), logPerHour(10), 10)
			ask(s, key("day", i), day, 10)
		}
		records, _ := s.Save(0, 0, nil)
		for _, tc := range []struct {
			later   time.Duration
			expired int
		}{{0, 0}, {12 * time.Hour, 100}, {72 * time.Hour, 150}} {
			counters, expired, err := Survey(0, 1, records, s.Now()+int64(tc.later))
			if counters != 150 || expired != tc.expired || err != nil {
				t.Errorf("%v later: %d of %d counters are over, want %d of 150; %v", tc.later, expired, counters, tc.expired, err)
			}
		}
		if _, _, err := Survey(0, 1, records[:len(records)-1], 0); err == nil {
			t.Error("records that end early were counted")
		}
	})
}
