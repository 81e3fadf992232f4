package e2e

import (
	"flag"
	"testing"

	"github.com/weirlimit/weir/test/process"
)

// waiting is how many tests that wait run at once, unless -parallel says otherwise. With the race detector it
// is one: nodes with it need the processors of the machine.
const waiting = "6"

func TestMain(m *testing.M) {
	flag.Parse()
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if !said {
		parallel := waiting
		if process.RaceEnabled {
			parallel = "1"
		}
		if err := flag.Set("test.parallel", parallel); err != nil {
			panic(err)
		}
	}
	process.Main(m)
}
