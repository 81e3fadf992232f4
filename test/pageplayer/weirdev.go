package pageplayer

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/test/process"
)

// Dev runs weir dev, and types.
type Dev struct {
	Cmd   *exec.Cmd
	Stdin io.WriteCloser
	Out   io.Closer // what lines are read from
	PIDs  []int     // of what it has started

	t     *testing.T
	lines chan string
	tmp   string // its directory of temporary files
}

// StartDev runs weir dev, and waits until its cluster is whole.
func StartDev(t *testing.T, args ...string) *Dev {
	t.Helper()
	d := RunDev(t, args...)
	d.Await(`^whole: `)
	d.PIDs = d.Running()
	return d
}

// RunDev runs weir dev.
func RunDev(t *testing.T, args ...string) *Dev {
	t.Helper()
	d := &Dev{t: t, lines: make(chan string, 1000), tmp: t.TempDir()}
	d.Cmd = exec.Command(process.Binary(t), append([]string{"dev", "--host", process.Host(t)}, args...)...)
	d.Cmd.Env = append(os.Environ(), "TMPDIR="+d.tmp)
	d.Cmd.Stderr = os.Stderr
	stdout, err := d.Cmd.StdoutPipe()
	if err == nil {
		d.Stdin, err = d.Cmd.StdinPipe()
	}
	if err == nil {
		err = d.Cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	d.Out = stdout
	t.Cleanup(func() {
		if t.Failed() {
			d.showLogs()
		}
		_ = d.Cmd.Process.Kill()
	})
	go func() {
		defer close(d.lines)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			d.lines <- scanner.Text()
		}
	}()
	return d
}

// showLogs shows what the parts have logged.
func (d *Dev) showLogs() {
	paths, _ := filepath.Glob(filepath.Join(d.tmp, "weir-dev-*", "*.log")) // the pattern is good
	for _, path := range paths {
		text, err := os.ReadFile(path)
		d.t.Logf("%s: %v\n%s", filepath.Base(path), err, text)
	}
}

// TypeIn types a line.
func (d *Dev) TypeIn(line string) {
	d.t.Helper()
	if _, err := io.WriteString(d.Stdin, line+"\n"); err != nil {
		d.t.Fatal(err)
	}
}

// Await returns the next line that matches.
func (d *Dev) Await(pattern string) string {
	d.t.Helper()
	return d.AwaitLine(pattern, regexp.MustCompile(pattern).MatchString)
}

// AwaitLine returns the next line that is wanted.
func (d *Dev) AwaitLine(pattern string, wanted func(line string) bool) string {
	d.t.Helper()
	over := time.After(process.Patience)
	var before []string
	for {
		select {
		case line, more := <-d.lines:
			if wanted(line) {
				return line
			}
			if before = append(before, line); !more {
				d.t.Fatalf("weir dev has ended without %q:\n%s", pattern, strings.Join(before, "\n"))
			}
		case <-over:
			d.t.Fatalf("weir dev does not print %q, but\n%s", pattern, strings.Join(before, "\n"))
		}
	}
}

// Running lists the processes of the parts that run.
func (d *Dev) Running() (pids []int) {
	d.t.Helper()
	d.TypeIn("show")
	for {
		fields := strings.Fields(d.Await(`^(node-\d|etcd) +(running|paused|ended) `))
		if pid, err := strconv.Atoi(fields[2]); err == nil {
			pids = append(pids, pid)
		}
		if fields[0] == "etcd" {
			return pids
		}
	}
}

// Gone waits until weir dev and all that it has started have ended, and returns its exit code.
func (d *Dev) Gone() int {
	d.t.Helper()
	ended := make(chan struct{})
	go func() {
		_ = d.Cmd.Wait() // the code says how
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(process.Patience):
		d.t.Fatal("weir dev does not end")
	}
	process.Await(d.t, process.Patience, func() error {
		for _, pid := range d.PIDs {
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
				return errors.New("process " + strconv.Itoa(pid) + " is left")
			}
		}
		return nil
	})
	return d.Cmd.ProcessState.ExitCode()
}

// Left lists what is left in its directory of temporary files.
func (d *Dev) Left() []string {
	d.t.Helper()
	entries, err := os.ReadDir(d.tmp)
	if err != nil {
		d.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Address is where a node has gRPC.
func (d *Dev) Address(node string) string {
	d.t.Helper()
	d.TypeIn("show")
	return strings.Fields(d.Await(`^` + node + ` `))[3]
}
