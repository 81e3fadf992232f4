package shard

import (
	"fmt"
	"testing"
)

func TestNewRefuses(t *testing.T) {
	for _, tc := range []struct {
		config Config
		want   string
	}{
		{Config{MaxBytes: 1}, "shard: partitions: 0 is not at least 1"},
		{Config{Partitions: 3, MaxBytes: 3*4096 - 1}, "shard: max bytes: 12287 is not at least 12288"},
		{Config{Partitions: 1, MaxBytes: 1 << 62}, "shard: max bytes: 4611686018427387904 is not at most 8796093020160"},
		{Config{Partitions: 1, MaxBytes: 4096, MaxLongBytes: -1}, "shard: max long bytes: -1 is not at least 0"},
	} {
		if _, err := New(tc.config); fmt.Sprint(err) != tc.want {
			t.Errorf("%+v: %v, want %s", tc.config, err, tc.want)
		}
	}
}
