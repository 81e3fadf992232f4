package e2e

import (
	"bytes"
	"os/exec"
	"sync"
	"testing"

	"github.com/weirlimit/weir/test/process"
)

// output is what a process has written. Its methods may be called from several goroutines.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// command starts weir serve with these arguments, and does not wait until it is ready.
func command(t *testing.T, args ...string) (cmd *exec.Cmd, log *output, ended <-chan error) {
	t.Helper()
	cmd, log = exec.Command(process.Binary(t), append([]string{"serve", "--data-dir", t.TempDir()}, args...)...), new(output)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		end <- cmd.Wait()
		close(done)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-done
	})
	return cmd, log, end
}
