package bench

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

// process is a process of this machine, such as a node, with what it had used when its measurement began.
type process struct {
	pid int
	cpu time.Duration // at the start
	rss int64
}

// measureProcesses begins to measure processes.
func measureProcesses(pids []int) ([]process, error) {
	var processes []process
	for _, pid := range pids {
		cpu, rss, err := readProcess(pid)
		if err != nil {
			return nil, fmt.Errorf("process %d cannot be measured on this machine: %w", pid, err)
		}
		processes = append(processes, process{pid, cpu, rss})
	}
	return processes, nil
}

// usage is what the process has used for so many checks.
func (p process) usage(checks int64) Usage {
	cpu, rss, err := readProcess(p.pid)
	if err != nil {
		return Usage{PID: p.pid, Gone: true}
	}
	return Usage{PID: p.pid, CPU: ratio(micros(cpu-p.cpu), float64(checks)), RSS: rss, Grown: rss - p.rss}
}

// readProcess returns the user and system time of a process, to 10 ms, and the bytes
// that it has in memory, as /proc says.
func readProcess(pid int) (cpu time.Duration, rss int64, err error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0, err
	}
	stat, err := proc.Stat()
	if err != nil {
		return 0, 0, err
	}
	return time.Duration(stat.CPUTime() * float64(time.Second)), int64(stat.ResidentMemory()), nil
}
