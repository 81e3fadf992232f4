package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/weirlimit/weir/test/process"
)

// etcdProgram is an etcd of its own program, with one member.
type etcdProgram struct {
	t              *testing.T
	program        string
	scheme         string   // http, or https for its clients
	endpoint, peer string   // where it listens: host and port for clients, and a URL for members
	data           string   // its directory
	flags          []string // in addition
	cmd            *exec.Cmd
	log            string // path of what it writes
	ended          chan struct{}
}

// newEtcdProgram returns one with an empty directory that does not run yet. It listens where no other test does.
func newEtcdProgram(t *testing.T) *etcdProgram {
	t.Helper()
	host := process.Host(t)
	return &etcdProgram{t: t, program: findEtcd(t, "etcd"), scheme: "http", endpoint: freeAddressOn(t, host), peer: "http://" + freeAddressOn(t, host),
		data: t.TempDir(), log: filepath.Join(t.TempDir(), "etcd.log")}
}

// url returns where its clients reach it.
func (e *etcdProgram) url() string { return e.scheme + "://" + e.endpoint }

// start starts it on its directory. The caller waits until it answers. It is killed when the test ends.
func (e *etcdProgram) start() {
	e.t.Helper()
	log, err := os.Create(e.log)
	if err != nil {
		e.t.Fatal(err)
	}
	e.cmd = exec.Command(e.program, append([]string{"--name", "etcd-1", "--data-dir", e.data, "--listen-client-urls", e.url(), "--advertise-client-urls", e.url(),
		"--listen-peer-urls", e.peer, "--initial-advertise-peer-urls", e.peer, "--initial-cluster", "etcd-1=" + e.peer}, e.flags...)...)
	e.cmd.Stdout, e.cmd.Stderr = log, log
	if err := e.cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	_ = log.Close() // the process has its own
	cmd, ended := e.cmd, make(chan struct{})
	e.ended = ended
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	e.t.Cleanup(e.kill)
}

// await waits until this succeeds, and fails with what etcd wrote if that has ended.
func (e *etcdProgram) await(condition func() error) {
	e.t.Helper()
	process.Await(e.t, process.Patience, func() error {
		err := condition()
		if err == nil {
			return nil
		}
		log, unread := os.ReadFile(e.log)
		if unread != nil {
			e.t.Fatal(unread)
		}
		select {
		case <-e.ended:
			e.t.Fatalf("etcd has ended, %v:\n%s", e.cmd.ProcessState, log)
		default:
		}
		return fmt.Errorf("%w\netcd wrote:\n%s", err, log)
	})
}

// kill ends it as a crash would.
func (e *etcdProgram) kill() {
	_ = e.cmd.Process.Kill() // it may have ended
	<-e.ended
}

// findEtcd returns where a program of etcd is.
func findEtcd(t *testing.T, name string) string {
	t.Helper()
	if dir := os.Getenv("ETCD_BIN"); dir != "" {
		return filepath.Join(dir, name)
	}
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	skip(t, name+" is not installed; .ci/run gets it, and ETCD_BIN is the directory where it is")
	return ""
}
