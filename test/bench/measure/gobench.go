// Package measure runs benchmarks, Go's and those of command weir, and reads what they
// report.
package measure

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
)

// GoTest runs go test with these arguments in a directory, with benchmarks on each of these
// numbers of processors, and returns what they measured: under their names, to which
// "@N" is added if there are several such numbers. What go test says goes to log as well.
func GoTest(ctx context.Context, log io.Writer, dir string, cpus []int, args ...string) (Results, error) {
	var list []string
	for _, n := range cpus {
		list = append(list, strconv.Itoa(n))
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-run", "^$", "-cpu", strings.Join(list, ",")}, args...)...)
	cmd.Dir = dir
	endTogether(cmd)
	var out bytes.Buffer
	cmd.Stdout = io.MultiWriter(log, &out)
	cmd.Stderr = log
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), cmp.Or(context.Cause(ctx), err), out.Bytes())
	}
	return parse(&out, cpus)
}

// parse reads the lines of benchmarks: name, number of iterations, and pairs of value and
// unit. Go adds the number of processors to the name, unless it is 1.
func parse(r io.Reader, cpus []int) (Results, error) {
	results := make(Results)
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || len(fields)%2 != 0 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := nameOf(fields[0], cpus)
		for i := 2; i < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", lines.Text(), err)
			}
			results.add(name, fields[i+1], value)
		}
	}
	return results, lines.Err()
}

// nameOf takes the number of processors from a name, and puts it back its own way if there
// are several.
func nameOf(printed string, cpus []int) string {
	name, on := printed, 1
	for _, n := range cpus {
		if cut, found := strings.CutSuffix(printed, "-"+strconv.Itoa(n)); found && n != 1 {
			name, on = cut, n
		}
	}
	if len(cpus) > 1 {
		name += "@" + strconv.Itoa(on)
	}
	return name
}
