package linear

import (
	"flag"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

var form = testform.NewForm("linear", "take the time of the full form, three minutes: rotation, kills and windows that end too")

func TestMain(m *testing.M) {
	flag.Parse()
	process.Main(m)
}

// calm is how long clients ask before and after what happens.
func calm() time.Duration {
	if form.Full() {
		return 5 * time.Second
	}
	return 500 * time.Millisecond
}

// wait lets time pass.
func wait(d time.Duration) { <-time.After(d) }
