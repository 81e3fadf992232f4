package e2e

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

// A node that has never run waits for etcd as long as it is told to, says so, and serves once etcd answers. Else it ends, and says for how long it has waited.
func TestNodeWaitsForEtcd(t *testing.T) {
	testform.NotInBrief(t)
	t.Parallel()
	etcd := process.StartEtcd(t)
	etcd.Kill()
	http := freeAddress(t)
	serve := func(wait, http string) (*output, <-chan error) {
		_, log, ended := command(t, "--etcd", etcd.Endpoint, "--grpc", freeAddress(t), "--http", http, "--etcd-wait", wait)
		return log, ended
	}
	log, ended := serve("1m", http)
	impatient, over := serve("2s", freeAddress(t))
	var exit *exec.ExitError
	if err := <-over; !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(impatient.String(), "no answer in 2s") {
		t.Errorf("%v, want exit code 1 and that there was no answer in 2s: %s", err, impatient)
	}
	pause(t, 4*time.Second) // longer than a node waits by default
	if text := log.String(); strings.Count(text, "waiting for etcd, which does not answer") != 1 {
		t.Errorf("it does not say once that it waits: %s", text)
	}
	etcd.Start()
	process.Await(t, process.Patience, func() error {
		select {
		case err := <-ended:
			t.Fatalf("it has ended, %v: %s", err, log)
		default:
		}
		if readyz(http) != 200 {
			return errors.New("it is not ready")
		}
		return nil
	})
}
