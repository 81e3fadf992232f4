package dev

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Console carries out commands on a cluster, one a line.
type Console struct {
	Cluster *Cluster
	Tell    func(line string)
	// Parse reads the request of a load, written as for weir check.
	Parse func(args []string) (*weirv1.RateLimitRequest, error)

	load *Load
}

// Help lists the commands.
const Help = `show                      the parts: nodes and etcd, their addresses, and what is cut
kill PART                 end it as a crash does (SIGKILL)
stop PART                 tell it to stop (SIGTERM); a node hands its counters over first
restart PART              start it again; one that runs is stopped before
pause PART                have it answer nothing (SIGSTOP)
resume PART               have it go on (SIGCONT)
cut PART [PART...]        cut one from all others, or several from each other
heal [PART...]            undo cut, of all without a name
wait                      wait until the cluster has settled
load RATE KEY=VALUE...    ask RATE times a second, such as load 200/s user=alice endpoint=/posts
load off                  end the load
log PART                  the last lines of its log
check, explain, status, reset, nodes, ring, rules, drain, audit, doctor
                          commands of weir, for the first node that is up
help                      this list
quit                      end all, and remove what was written (or Ctrl-D, Ctrl-C)`

// asked are the commands of weir that ask a node.
var asked = []string{"check", "explain", "status", "reset", "nodes", "ring", "rules", "drain", "audit", "doctor"}

// words are all commands.
var words = append([]string{"show", "kill", "stop", "restart", "pause", "resume", "cut", "heal", "wait", "load", "log", "help", "quit"}, asked...)

// errQuit says that no more commands are wanted.
var errQuit = errors.New("quit")

// Run carries out the lines of r until its end, the command quit, or the end of ctx.
func (c *Console) Run(ctx context.Context, r io.Reader) error {
	lines, errs := make(chan string), make(chan error, 1)
	go func() { // ends with the process: a read of a terminal cannot be interrupted
		scanner := bufio.NewScanner(r)
		scanner.Buffer(make([]byte, 0, maxLine), maxLine)
		for scanner.Scan() {
			select {
			case lines <- scanner.Text():
			case <-ctx.Done():
				return
			}
		}
		errs <- scanner.Err()
	}()
	defer c.endLoad()
	for {
		select {
		case line := <-lines:
			text, err := c.do(ctx, strings.Fields(line))
			switch {
			case errors.Is(err, errQuit) || ctx.Err() != nil:
				return nil
			case err != nil:
				c.Tell("error: " + err.Error())
			case text != "":
				c.Tell(text)
			}
		case err := <-errs:
			if errors.Is(err, bufio.ErrTooLong) {
				return fmt.Errorf("a line has more than %d bytes", maxLine)
			}
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// do carries out one command, and returns what to print.
func (c *Console) do(ctx context.Context, args []string) (string, error) {
	if len(args) == 0 || strings.HasPrefix(args[0], "#") {
		return "", nil
	}
	word, args := args[0], args[1:]
	one := map[string]func(context.Context, string) (string, error){
		"kill": c.Cluster.Kill, "stop": c.Cluster.Stop, "restart": c.Cluster.Restart, "pause": c.Cluster.Pause, "resume": c.Cluster.Resume,
		"log": func(_ context.Context, name string) (string, error) { return c.Cluster.Log(name) },
	}
	switch {
	case one[word] != nil && len(args) != 1:
		return "", fmt.Errorf("%s takes the name of one part, see show", word)
	case one[word] != nil:
		return one[word](ctx, args[0])
	case word == "cut" && len(args) == 0:
		return "", errors.New("cut takes the name of a part, or of several, see show")
	case word == "cut":
		return c.Cluster.Cut(args...)
	case word == "heal":
		return c.Cluster.Heal(args...)
	case word == "load":
		return c.startLoad(args)
	case slices.Contains(asked, word):
		return c.ask(ctx, word, args)
	case !slices.Contains(words, word):
		return "", fmt.Errorf("there is no command %q; help lists them", word)
	case len(args) > 0:
		return "", fmt.Errorf("%s takes nothing behind it, but got %q", word, args[0])
	}
	switch word {
	case "show":
		return c.Cluster.Show(), nil
	case "wait":
		return "", c.Cluster.Wait(ctx)
	case "help":
		return Help, nil
	}
	return "", errQuit
}

// startLoad begins a load in place of the one before, or ends it.
func (c *Console) startLoad(args []string) (string, error) {
	if len(args) == 1 && args[0] == "off" {
		if c.load == nil {
			return "", errors.New("there is no load")
		}
		c.endLoad()
		return "the load has ended", nil
	}
	if len(args) < 2 {
		return "", errors.New("load takes a rate and a request, such as load 200/s user=alice, or off")
	}
	rate, err := ParseRate(args[0])
	if err != nil {
		return "", err
	}
	request, err := c.Parse(args[1:])
	if err != nil {
		return "", err
	}
	c.endLoad()
	c.load, err = StartLoad(c.Cluster, rate, request)
	return "", err
}

func (c *Console) endLoad() {
	if c.load != nil {
		_ = c.load.Stop() // the connections of a client that is not used again
		c.load = nil
	}
}

// ask runs a command of weir. What it prints is the answer, also if its exit code is not 0.
func (c *Console) ask(ctx context.Context, word string, args []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Cluster.cfg.Binary, append([]string{word}, args...)...)
	cmd.Env = append(withoutOptions(os.Environ()), "WEIR_NODE="+c.Cluster.Address())
	out, err := cmd.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed || ctx.Err() != nil {
		return "", errors.Join(err, ctx.Err())
	}
	return strings.TrimRight(string(out), "\n"), nil
}

// withoutOptions returns an environment without the variables of weir.
func withoutOptions(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(v string) bool { return strings.HasPrefix(v, "WEIR_") })
}
