package node

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// Bounds of what the machine should give.
const (
	neededFiles   = 1024      // descriptors below which a node does not serve many callers
	goodFiles     = 16 << 10  // descriptors
	besideMemory  = 512 << 20 // bytes that a node may need in addition to --counter-memory, with what logs of times take
	mostOfMemory  = 0.9       // share of the memory that a node may fill without a warning
	thpPath       = "/sys/kernel/mm/transparent_hugepage/enabled"
	memInfoPath   = "/proc/meminfo"
	cgroupPath    = "/proc/self/cgroup"
	cgroupRoot    = "/sys/fs/cgroup"
	cgroupV1Limit = "/sys/fs/cgroup/memory/memory.limit_in_bytes"
)

// system looks at what the machine gives to the process that weir serve would be. What this system does not tell is left out.
func (d *doctor) system() {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err == nil {
		d.findings = append(d.findings, fileFinding(files.Cur))
	}
	if most, from := memoryLimit("/"); most > 0 {
		d.findings = append(d.findings, memoryFinding(int64(d.node.opts.CounterMemory), most, from))
	}
	if runtime.GOOS == "linux" {
		text, err := os.ReadFile(thpPath)
		d.findings = append(d.findings, hugePagesFinding(string(text), err))
	}
	if synchronized, known := clockSynchronized(); known {
		d.findings = append(d.findings, clockFinding(synchronized))
	}
}

func fileFinding(most uint64) Finding {
	const subject = "file descriptors"
	text := fmt.Sprintf("this user's processes may have %d open, one for each connection", most)
	if most >= math.MaxInt64 {
		text = "as many may be open as the system has"
	}
	switch {
	case most < neededFiles:
		return Finding{Bad, subject, text, fmt.Sprintf("raise the limit to %d or more: LimitNOFILE= of the unit, or ulimit -n", goodFiles)}
	case most < goodFiles:
		return Finding{Doubtful, subject, text, fmt.Sprintf("raise the limit to %d: LimitNOFILE= of the unit, or ulimit -n", goodFiles)}
	}
	return Finding{Severity: Good, Subject: subject, Text: text}
}

func memoryFinding(counters, most int64, from string) Finding {
	const subject = "counter-memory"
	text := fmt.Sprintf("counters may take %v, and all else up to %v; %s is %v", Bytes(counters), Bytes(besideMemory), from, Bytes(most))
	const advice = "lower --counter-memory, or give the node more memory: the system kills a process that takes too much"
	switch {
	case counters > most:
		return Finding{Bad, subject, text, advice}
	case float64(counters)+besideMemory > mostOfMemory*float64(most):
		return Finding{Doubtful, subject, text, advice}
	}
	return Finding{Severity: Good, Subject: subject, Text: text}
}

func hugePagesFinding(enabled string, err error) Finding {
	const subject = "huge pages"
	switch {
	case err != nil:
		return Finding{Doubtful, subject, "the kernel has no transparent huge pages: checks among millions of counters take longer", "run a kernel that has them, if there are millions of counters"}
	case strings.Contains(enabled, "[never]"):
		return Finding{Doubtful, subject, "transparent huge pages are off: checks among millions of counters take longer", "echo madvise > " + thpPath}
	}
	return Finding{Severity: Good, Subject: subject, Text: "the kernel gives transparent huge pages"}
}

func clockFinding(synchronized bool) Finding {
	const subject = "clock"
	if !synchronized {
		return Finding{Doubtful, subject, "the kernel says that this machine's clock is not synchronized", "run an NTP client, such as chrony, or see whether it reaches its servers (chronyc tracking, timedatectl)"}
	}
	return Finding{Severity: Good, Subject: subject, Text: "the kernel says that this machine's clock is synchronized"}
}

// memoryLimit returns the memory that this process may have, and what says so: the least of the limits of its control groups and the
// memory of the machine. It is 0 if nothing tells. root is "/", and another directory in tests.
func memoryLimit(root string) (least int64, from string) {
	take := func(bytes int64, what string) {
		if bytes > 0 && (least == 0 || bytes < least) {
			least, from = bytes, what
		}
	}
	take(machineMemory(filepath.Join(root, memInfoPath)), "the memory of this machine")
	take(readBytes(filepath.Join(root, cgroupV1Limit)), "the memory limit of this control group")
	text, err := os.ReadFile(filepath.Join(root, cgroupPath))
	if err != nil {
		return least, from
	}
	for line := range strings.Lines(string(text)) {
		group, unified := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !unified || !filepath.IsAbs(group) {
			continue
		}
		for ; ; group = filepath.Dir(group) { // a group has no more than those above it
			take(readBytes(filepath.Join(root, cgroupRoot, group, "memory.max")), "the memory limit of this control group")
			if group == "/" {
				break
			}
		}
	}
	return least, from
}

// readBytes reads a file with a number, and returns 0 if it has none, such as "max".
func readBytes(path string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func machineMemory(path string) int64 {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }() // it was only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) == 3 && fields[0] == "MemTotal:" {
			kib, _ := strconv.ParseInt(fields[1], 10, 64) // 0 is not known
			return kib << 10
		}
	}
	return 0
}
