package e2e

import (
	"testing"

	"github.com/weirlimit/weir/test/process"
)

func TestMain(m *testing.M) { process.Main(m) }
