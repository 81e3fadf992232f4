package linear

import (
	"flag"
	"testing"

	"github.com/weirlimit/weir/test/process"
)

var form = process.NewForm("linear", "take the time of the full form, two minutes: rotation, kills and windows that end too")

func TestMain(m *testing.M) {
	flag.Parse()
	process.Main(m)
}
