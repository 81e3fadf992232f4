package install

import (
	"fmt"
	"os"
	"testing"

	"github.com/weirlimit/weir/test/process"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(machineVariable); dir != "" {
		fmt.Fprintln(os.Stderr, become(dir))
		os.Exit(1)
	}
	process.Main(m)
}
