package hostile

import (
	"flag"
	"testing"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

var form = testform.NewForm("hostile", "abuse nodes for longer, and hold other callers' latency to its bound: on a machine with nothing else to do")

func TestMain(m *testing.M) {
	flag.Parse()
	process.Main(m)
}
