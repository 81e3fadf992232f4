package e2e

import (
	"testing"

	"github.com/weirlimit/weir/test/process"
)

// waiting is how many tests that wait run at once.
const waiting = 6

func TestMain(m *testing.M) {
	process.Parallel(waiting)
	process.Main(m)
}
