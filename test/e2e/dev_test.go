package e2e

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/test/process"
)

// typist runs weir dev, and types.
type typist struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   io.Closer // what lines are read from
	lines chan string
	tmp   string // its directory of temporary files
	pids  []int  // of what it has started
}

// startDev runs weir dev, and waits until its cluster is whole.
func startDev(t *testing.T, args ...string) *typist {
	t.Helper()
	d := runDev(t, args...)
	d.await(`^whole: `)
	d.pids = d.running()
	return d
}

// runDev runs weir dev.
func runDev(t *testing.T, args ...string) *typist {
	t.Helper()
	d := &typist{t: t, lines: make(chan string, 1000), tmp: t.TempDir()}
	d.cmd = exec.Command(process.Binary(t), append([]string{"dev", "--host", process.Host(t)}, args...)...)
	d.cmd.Env = append(os.Environ(), "TMPDIR="+d.tmp)
	d.cmd.Stderr = os.Stderr
	stdout, err := d.cmd.StdoutPipe()
	if err == nil {
		d.stdin, err = d.cmd.StdinPipe()
	}
	if err == nil {
		err = d.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	d.out = stdout
	t.Cleanup(func() {
		if t.Failed() {
			d.showLogs()
		}
		_ = d.cmd.Process.Kill()
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
func (d *typist) showLogs() {
	paths, _ := filepath.Glob(filepath.Join(d.tmp, "weir-dev-*", "*.log")) // the pattern is good
	for _, path := range paths {
		text, err := os.ReadFile(path)
		d.t.Logf("%s: %v\n%s", filepath.Base(path), err, text)
	}
}

func (d *typist) typeIn(line string) {
	d.t.Helper()
	if _, err := io.WriteString(d.stdin, line+"\n"); err != nil {
		d.t.Fatal(err)
	}
}

// await returns the next line that matches.
func (d *typist) await(pattern string) string {
	d.t.Helper()
	return d.awaitLine(pattern, regexp.MustCompile(pattern).MatchString)
}

// awaitLine returns the next line that is wanted.
func (d *typist) awaitLine(pattern string, wanted func(line string) bool) string {
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

// running lists the processes of the parts that run.
func (d *typist) running() (pids []int) {
	d.t.Helper()
	d.typeIn("show")
	for {
		fields := strings.Fields(d.await(`^(node-\d|etcd) +(running|paused|ended) `))
		if pid, err := strconv.Atoi(fields[2]); err == nil {
			pids = append(pids, pid)
		}
		if fields[0] == "etcd" {
			return pids
		}
	}
}

// gone waits until weir dev and all that it has started have ended, and returns its exit code.
func (d *typist) gone() int {
	d.t.Helper()
	ended := make(chan struct{})
	go func() {
		_ = d.cmd.Wait() // the code says how
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(process.Patience):
		d.t.Fatal("weir dev does not end")
	}
	process.Await(d.t, process.Patience, func() error {
		for _, pid := range d.pids {
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
				return errors.New("process " + strconv.Itoa(pid) + " is left")
			}
		}
		return nil
	})
	return d.cmd.ProcessState.ExitCode()
}

// left lists what is left in its directory of temporary files.
func (d *typist) left() []string {
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

const dailyRule = `domain: default
rules:
  - {id: posts-per-user, when: {endpoint: /posts}, per: [user], limits: [{limit: 5, window: 365d}]}
`

// weir dev holds limits while its nodes are killed, cut off, healed and started again by typing, and leaves nothing behind.
func TestDevBreaksAClusterByTyping(t *testing.T) {
	process.NotInBrief(t)
	t.Parallel()
	d := startDev(t, "--rules", writeRules(t, dailyRule), "--", "--peer-timeout", "2s")
	const check = "check user=alice endpoint=/posts"
	for range 5 {
		d.typeIn(check)
		d.await(`^allowed `)
	}
	denied := func() {
		t.Helper()
		process.Await(t, process.Patience, func() error {
			d.typeIn(check)
			decision, source := d.await(`^(allowed|denied) `), d.await(`^source `)
			if strings.Contains(source, " fail_open ") {
				return errors.New(decision + ": no node has decided") // the end of a decision lease is waited for
			}
			if !strings.HasPrefix(decision, "denied") {
				t.Errorf("a sixth check: %s, %s", decision, source)
			}
			return nil
		})
	}
	denied()
	d.typeIn("explain user=alice endpoint=/posts")
	owner := regexp.MustCompile(`node-\d$`).FindString(d.await(`^posts-per-user +5 per`))

	d.typeIn("kill " + owner)
	d.await(`^` + owner + ` was killed`)
	denied()
	d.typeIn("load 100/s user=alice endpoint=/posts")
	d.await(`^load: 0 allowed, [1-9]\d* denied, 0 undecided`)
	d.typeIn("load off")
	d.await(`^the load has ended`)
	d.await(`^settled without ` + owner + `: 2 of 3 nodes`)
	denied()
	d.typeIn("restart " + owner)
	d.await(`^whole: 3 of 3`)
	denied()

	d.typeIn("cut " + owner)
	d.await(`^settled without ` + owner)
	denied()
	d.typeIn("nodes --node " + d.address(owner)) // what it knows, clients still reach it
	if line := d.await(`^view \d+, members`); strings.Contains(line, "members 2 of 2") {
		t.Errorf("a node that is cut from etcd knows that it is no member: %s", line)
	}
	d.typeIn("heal")
	d.await(`^whole: 3 of 3`)
	denied()

	// The relay writes to connections of a node that is gone, and lives.
	if err := d.cmd.Process.Signal(syscall.SIGPIPE); err != nil {
		t.Fatal(err)
	}
	d.typeIn("pause etcd")
	d.typeIn("show")
	d.await(`^etcd +paused`)
	d.typeIn("resume etcd")
	d.await(`^etcd goes on`)
	d.typeIn("stop node-3")
	d.await(`^node-3 has stopped`)
	for line, want := range map[string]string{
		"boom": `there is no command "boom"`, "kill node-9": `there is no "node-9", only node-1,`, "kill node-3": "node-3 is ended", "kill": "kill takes the name",
		"load 0/s user=a": `"0/s" is no rate`, "load 5/s x": `"x" is not KEY=VALUE`, "load off": "there is no load", "cut": "cut takes", "heal x": `there is no "x"`,
		"cut node-1 node-1": "named twice", "show x": `show takes nothing behind it, but got "x"`, "resume node-1": "node-1 is running", "log x": `there is no "x"`,
	} {
		d.typeIn(line)
		d.await(`^error: .*` + regexp.QuoteMeta(want))
	}
	d.typeIn("log node-1")
	d.await(`"msg":"new view"`)
	d.pids = append(d.pids, d.running()...)
	d.typeIn("quit")
	if code := d.gone(); code != 0 || len(d.left()) > 0 {
		t.Errorf("exit code %d, left behind: %v", code, d.left())
	}
}

// address is where a node has gRPC.
func (d *typist) address(node string) string {
	d.t.Helper()
	d.typeIn("show")
	return strings.Fields(d.await(`^` + node + ` `))[3]
}

// All that weir dev has started ends with it, however it ends.
func TestDevLeavesNoProcess(t *testing.T) {
	process.NotInBrief(t)
	for name, end := range map[string]func(d *typist) error{
		"end of input": func(d *typist) error { return d.stdin.Close() },
		"interrupt":    func(d *typist) error { return d.cmd.Process.Signal(os.Interrupt) },
		"hangup":       func(d *typist) error { return d.cmd.Process.Signal(syscall.SIGHUP) },
		"kill":         func(d *typist) error { return d.cmd.Process.Kill() },
		"no reader": func(d *typist) error {
			d.typeIn("load 10/s user=alice")
			return d.out.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "kill" && runtime.GOOS != "linux" {
				t.Skip("only Linux ends the children of a process that is killed")
			}
			t.Parallel()
			d := startDev(t, "--nodes", "1")
			d.typeIn("pause node-1")
			d.await(`^node-1 is paused`)
			if err := end(d); err != nil {
				t.Fatal(err)
			}
			code := d.gone()
			if name != "kill" && (code != 0 || len(d.left()) > 0) {
				t.Errorf("exit code %d, left behind: %v", code, d.left())
			}
		})
	}
}

// weir dev names what it is given badly, and starts nothing.
func TestDevRefuses(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"--nodes: 0 is not between 1 and 9":         {"--nodes", "0"},
		"--port: 70000 is not between":              {"--port", "70000"},
		`--host: "10.0.0.1" is no address`:          {"--host", "10.0.0.1"},
		"--rules: stat /gone/rules.yaml":            {"--rules", "/gone/rules.yaml"},
		`before --, but got "x"`:                    {"x"},
		"--id is set by weir dev":                   {"--", "--id", "a"},
		`"x" is no option of weir serve`:            {"--", "x"},
		"--peer-timeout: 1h0m0s is not between 1ms": {"--", "--peer-timeout", "1h"},
	} {
		out, err := exec.Command(process.Binary(t), append([]string{"dev"}, args...)...).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), want) {
			t.Errorf("weir dev %v: %v, want code 2 and %q:\n%s", args, err, want, out)
		}
	}
}
