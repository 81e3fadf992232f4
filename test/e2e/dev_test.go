package e2e

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/pageplayer"
	"github.com/weirlimit/weir/test/process"
)

const dailyRule = `domain: default
rules:
  - {id: posts-per-user, when: {endpoint: /posts}, per: [user], limits: [{limit: 5, window: 365d}]}
`

// weir dev holds limits while its nodes are killed, cut off, healed and started again by typing, and leaves nothing behind.
func TestDevBreaksAClusterByTyping(t *testing.T) {
	testform.NotInBrief(t)
	t.Parallel()
	d := pageplayer.StartDev(t, "--rules", writeRules(t, dailyRule), "--", "--peer-timeout", "2s")
	const check = "check user=alice endpoint=/posts"
	for range 5 {
		d.TypeIn(check)
		d.Await(`^allowed `)
	}
	denied := func() {
		t.Helper()
		process.Await(t, process.Patience, func() error {
			d.TypeIn(check)
			decision, source := d.Await(`^(allowed|denied) `), d.Await(`^source `)
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
	d.TypeIn("explain user=alice endpoint=/posts")
	owner := regexp.MustCompile(`node-\d$`).FindString(d.Await(`^posts-per-user +5 per`))

	d.TypeIn("kill " + owner)
	d.Await(`^` + owner + ` was killed`)
	denied()
	d.TypeIn("load 100/s user=alice endpoint=/posts")
	d.Await(`^load: 0 allowed, [1-9]\d* denied, 0 undecided`)
	d.TypeIn("load off")
	d.Await(`^the load has ended`)
	d.Await(`^settled without ` + owner + `: 2 of 3 nodes`)
	denied()
	d.TypeIn("restart " + owner)
	d.Await(`^whole: 3 of 3`)
	denied()

	d.TypeIn("cut " + owner)
	d.Await(`^settled without ` + owner)
	denied()
	d.TypeIn("nodes --node " + d.Address(owner)) // what it knows, clients still reach it
	if line := d.Await(`^view \d+, members`); strings.Contains(line, "members 2 of 2") {
		t.Errorf("a node that is cut from etcd knows that it is no member: %s", line)
	}
	d.TypeIn("heal")
	d.Await(`^whole: 3 of 3`)
	denied()

	// The relay writes to connections of a node that is gone, and lives.
	if err := d.Cmd.Process.Signal(syscall.SIGPIPE); err != nil {
		t.Fatal(err)
	}
	d.TypeIn("pause etcd")
	d.TypeIn("show")
	d.Await(`^etcd +paused`)
	d.TypeIn("resume etcd")
	d.Await(`^etcd goes on`)
	d.TypeIn("stop node-3")
	d.Await(`^node-3 has stopped`)
	for line, want := range map[string]string{
		"boom": `there is no command "boom"`, "kill node-9": `there is no "node-9", only node-1,`, "kill node-3": "node-3 is ended", "kill": "kill takes the name",
		"load 0/s user=a": `"0/s" is no rate`, "load 5/s x": `"x" is not KEY=VALUE`, "load off": "there is no load", "cut": "cut takes", "heal x": `there is no "x"`,
		"cut node-1 node-1": "named twice", "show x": `show takes nothing behind it, but got "x"`, "resume node-1": "node-1 is running", "log x": `there is no "x"`,
	} {
		d.TypeIn(line)
		d.Await(`^error: .*` + regexp.QuoteMeta(want))
	}
	d.TypeIn("log node-1")
	d.Await(`"msg":"new view"`)
	d.PIDs = append(d.PIDs, d.Running()...)
	d.TypeIn("quit")
	if code := d.Gone(); code != 0 || len(d.Left()) > 0 {
		t.Errorf("exit code %d, left behind: %v", code, d.Left())
	}
}

// All that weir dev has started ends with it, however it ends.
func TestDevLeavesNoProcess(t *testing.T) {
	testform.NotInBrief(t)
	for name, end := range map[string]func(d *pageplayer.Dev) error{
		"end of input": func(d *pageplayer.Dev) error { return d.Stdin.Close() },
		"interrupt":    func(d *pageplayer.Dev) error { return d.Cmd.Process.Signal(os.Interrupt) },
		"hangup":       func(d *pageplayer.Dev) error { return d.Cmd.Process.Signal(syscall.SIGHUP) },
		"kill":         func(d *pageplayer.Dev) error { return d.Cmd.Process.Kill() },
		"no reader": func(d *pageplayer.Dev) error {
			d.TypeIn("load 10/s user=alice")
			return d.Out.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "kill" && runtime.GOOS != "linux" {
				t.Skip("only Linux ends the children of a process that is killed")
			}
			t.Parallel()
			d := pageplayer.StartDev(t, "--nodes", "1")
			d.TypeIn("pause node-1")
			d.Await(`^node-1 is paused`)
			if err := end(d); err != nil {
				t.Fatal(err)
			}
			code := d.Gone()
			if name != "kill" && (code != 0 || len(d.Left()) > 0) {
				t.Errorf("exit code %d, left behind: %v", code, d.Left())
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
