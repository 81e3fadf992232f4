package chaos

import (
	"flag"
	"testing"

	"github.com/weirlimit/weir/test/process"
)

var full = flag.Bool("full", false, "take the time of the full form, several minutes")

func TestMain(m *testing.M) {
	flag.Parse()
	process.Main(m)
}

// brief returns what the short form uses instead of the value of the full form.
func brief[T any](inFull, inShort T) T {
	if *full {
		return inFull
	}
	return inShort
}
