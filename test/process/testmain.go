package process

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"github.com/weirlimit/weir/internal/testform"
)

// Parallel sets how many tests that call t.Parallel run at once, unless -parallel says it. With the race detector it is one: nodes
// with it need the processors of the machine. It is for a TestMain, before Main.
func Parallel(most int) {
	flag.Parse()
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if said {
		return
	}
	if testform.RaceEnabled {
		most = 1
	}
	if err := flag.Set("test.parallel", strconv.Itoa(most)); err != nil {
		panic(err)
	}
}

// Main replaces m.Run in a TestMain: in a process that StartEtcd has started it
// runs the etcd instead of the tests. It removes the binary at the end.
func Main(m *testing.M) {
	if spec := os.Getenv(etcdVariable); spec != "" {
		os.Exit(runEtcd(spec))
	}
	code := m.Run()
	_ = os.RemoveAll(built.dir) // it is in the temporary directory
	os.Exit(code)
}
