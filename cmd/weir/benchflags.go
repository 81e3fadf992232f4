package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/cmd/weir/internal/bench"
)

// keyFlags are those of commands that draw keys.
type keyFlags struct {
	keys         int64
	distribution string
	duration     time.Duration
}

func (f *keyFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Int64Var(&f.keys, "keys", 100_000, "check `N` keys")
	flags.StringVar(&f.distribution, "distribution", bench.Uniform,
		"`NAME` of the distribution of keys: uniform, zipf (exponent 1.1), hot (9 of 10 draws are one key), sequential")
	flags.DurationVar(&f.duration, "duration", 10*time.Second, "run for `DURATION`")
}

// draw checks the flags and returns the keys.
func (f *keyFlags) draw(cmd *cobra.Command) (*bench.Keys, error) {
	if f.duration <= 0 || f.duration > bench.MaxDuration {
		return nil, usageError(cmd, "--duration: %v is not above 0 and at most %v", f.duration, bench.MaxDuration)
	}
	keys, err := bench.NewKeys(f.distribution, f.keys)
	if err != nil {
		return nil, usageError(cmd, "--%w", err)
	}
	return keys, nil
}

// quantity is a flag that says how many.
type quantity struct {
	flag               string
	value, least, most int64
}

// checkQuantities refuses those that are not between the least and the most.
func checkQuantities(cmd *cobra.Command, quantities ...quantity) error {
	for _, c := range quantities {
		if c.value < c.least || c.value > c.most {
			return usageError(cmd, "--%s: %d is not between %d and %d", c.flag, c.value, c.least, c.most)
		}
	}
	return nil
}
