package install

import (
	"testing"

	"github.com/weirlimit/weir/test/process"
)

func TestMain(m *testing.M) { process.Main(m) }
