package bench

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

// meter measures a process of this machine from its making on.
type meter struct {
	pid int
	cpu time.Duration // at the start
	rss int64
}

func newMeters(pids []int) ([]meter, error) {
	var meters []meter
	for _, pid := range pids {
		cpu, rss, err := readProcess(pid)
		if err != nil {
			return nil, fmt.Errorf("process %d cannot be measured on this machine: %w", pid, err)
		}
		meters = append(meters, meter{pid, cpu, rss})
	}
	return meters, nil
}

// usage is what the process has used for so many checks.
func (m meter) usage(checks int64) Usage {
	cpu, rss, err := readProcess(m.pid)
	if err != nil {
		return Usage{PID: m.pid, Gone: true}
	}
	return Usage{PID: m.pid, CPU: ratio(micros(cpu-m.cpu), float64(checks)), RSS: rss, Grown: rss - m.rss}
}

// readProcess returns the user and system time of a process, to 10 ms, and the bytes
// that it has in memory, as /proc says.
func readProcess(pid int) (cpu time.Duration, rss int64, err error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0, err
	}
	stat, err := process.Stat()
	if err != nil {
		return 0, 0, err
	}
	return time.Duration(stat.CPUTime() * float64(time.Second)), int64(stat.ResidentMemory()), nil
}
