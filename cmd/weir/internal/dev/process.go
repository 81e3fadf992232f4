package dev

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
)

// State is what a process does.
type State string

// The states of a process.
const (
	Runs   State = "running"
	Paused State = "paused"
	Ended  State = "ended"
)

// starter starts processes from one thread that lives as long as they: Linux kills them when the thread that started
// them ends.
type starter struct {
	tasks chan func()
	done  chan struct{}
}

func newStarter() *starter {
	s := &starter{make(chan func()), make(chan struct{})}
	go func() {
		defer close(s.done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		for task := range s.tasks {
			task()
		}
	}()
	return s
}

func (s *starter) start(cmd *exec.Cmd) error {
	result := make(chan error, 1)
	s.tasks <- func() { result <- cmd.Start() }
	return <-result
}

func (s *starter) close() {
	close(s.tasks)
	<-s.done
}

// process is one part of the cluster. Its methods may be called from several goroutines.
type process struct {
	name    string
	address string // of its gRPC, or of etcd
	http    string // empty for etcd
	args    []string
	log     string // path of its log
	starter *starter
	ended   func(p *process, err error) // called when it has ended by itself

	mu     sync.Mutex
	state  State         // guarded by mu
	cmd    *exec.Cmd     // guarded by mu
	meant  bool          // guarded by mu; its end was asked for
	exited chan struct{} // guarded by mu; closed when the process of cmd has ended
}

// start starts the process. Its log is added to the one before.
func (p *process) start(binary string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the process has its own
	cmd := exec.Command(binary, p.args...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, sysProcAttr()
	if err := p.starter.start(cmd); err != nil {
		return err
	}
	p.cmd, p.state, p.meant, p.exited = cmd, Runs, false, make(chan struct{})
	go p.await(cmd, p.exited)
	return nil
}

// await waits for the end of the process. It ends with it.
func (p *process) await(cmd *exec.Cmd, exited chan struct{}) {
	err := cmd.Wait()
	p.mu.Lock()
	p.state = Ended
	meant := p.meant
	p.mu.Unlock()
	close(exited)
	if !meant {
		p.ended(p, err)
	}
}

var errNotRunning = errors.New("it does not run")

// signal sends the process a signal, after which it has another state. An end is waited for.
func (p *process) signal(ctx context.Context, s syscall.Signal, after State) error {
	p.mu.Lock()
	if p.state == Ended {
		p.mu.Unlock()
		return errNotRunning
	}
	p.meant = p.meant || after == Ended
	exited := p.exited
	err := p.cmd.Process.Signal(s)
	if err == nil && after != Ended {
		p.state = after
	}
	p.mu.Unlock()
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if after != Ended {
		return nil
	}
	select {
	case <-exited:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *process) now() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || p.cmd.Process == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// tail returns the last lines of the log.
func (p *process) tail(lines int) string {
	const most = 64 << 10 // bytes that are read
	f, err := os.Open(p.log)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return err.Error()
	}
	text := make([]byte, min(info.Size(), most))
	n, _ := f.ReadAt(text, info.Size()-int64(len(text))) // the end may be read while the process writes on
	all := strings.Split(strings.TrimRight(string(text[:n]), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
