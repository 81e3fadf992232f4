package helm

import (
	"flag"
	"os"
	"testing"

	"go.etcd.io/etcd/server/v3/etcdmain"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

// asEtcd has this binary be etcd, with all its flags.
const asEtcd = "WEIR_TEST_AS_ETCD"

var form = testform.NewForm("helm", "use the times of the chart, several minutes")

func TestMain(m *testing.M) {
	if os.Getenv(asEtcd) != "" {
		etcdmain.Main(append([]string{"etcd"}, os.Args[1:]...))
		return
	}
	flag.Parse()
	process.Main(m)
}
