package bench

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/weirlimit/weir/test/process"
)

// profileSeconds is for how long nodes are profiled, under a load of a second more.
const profileSeconds = 8

// BenchmarkProfile is where the processor time of a check goes, in all nodes: the time that
// the profiler saw, by groups of functions, as parts of what a check costs. The profiler
// takes some itself.
func BenchmarkProfile(b *testing.B) {
	for _, size := range []int{1, 3} {
		nodes := startNodes(b, size, "--pprof", "127.0.0.1:0")
		for _, path := range []struct{ name, flags string }{
			{"unary", "--mode unary --callers 64"},
			{"batch100", "--mode batch --callers 64"},
			{"stream100", "--mode stream --callers 6"},
		} {
			b.Run(fmt.Sprintf("%s/nodes=%d", path.name, size), func(b *testing.B) {
				flags := append(strings.Fields(path.flags), "--duration", strconv.Itoa(profileSeconds+1)+"s", "endpoint=/api/v1/posts")
				var profiles []string
				var all sync.WaitGroup
				for i, n := range nodes {
					file := filepath.Join(b.TempDir(), strconv.Itoa(i))
					profiles = append(profiles, file)
					all.Go(func() {
						if err := profile(n, file); err != nil {
							b.Error(err)
						}
					})
				}
				l := runLoad(b, nodes, flags...)
				all.Wait()
				if b.Failed() {
					return
				}
				for group, share := range shares(b, profiles) {
					b.ReportMetric(share*l.cpu(), group+"-µs")
				}
				b.ReportMetric(l.cpu(), "cpu-µs/check")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

var profileURL = regexp.MustCompile(`http://\S+/debug/pprof/`)

// profile writes a node's profile of the processor to a file.
func profile(n *process.Node, file string) error {
	url := profileURL.FindString(n.Log())
	if url == "" {
		return fmt.Errorf("%s does not say where its profiles are", n.ID)
	}
	resp, err := http.Get(url + "profile?seconds=" + strconv.Itoa(profileSeconds))
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, resp.Status, text)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// group is a group of functions, by their names.
type group struct {
	name  string
	match *regexp.Regexp
}

// groups: the first that fits counts, and the last fits all.
var groups = []group{
	{"syscalls", regexp.MustCompile(`^(internal/runtime/syscall|syscall|internal/poll|net|golang\.org/x/sys/unix|runtime\.(futex|epoll\w*|write1?|read|usleep|osyield|vgettimeofday|nanotime1?|walltime)\b)`)},
	{"scheduler", regexp.MustCompile(`^(runtime\.(\(\*(timer|timers|hchan|waitq|guintptr|sudog)\)|schedule|findRunnable|findrunnable|steal|runq|park|gopark|goready|ready|wakep|startm|stopm|mcall|gogo|execute|casgstatus|lock|unlock|netpoll|chan|send|recv|select|sel|newproc|goexit|gfget|gfput|gdestroy|exitsyscall|entersyscall|reentersyscall|casGToWaiting|resetspinning|pid|pMask|checkTimers|procyield|mutex|sema|notes?|notetsleep|acquirem|releasem|acquirep|releasep|retake|sysmon|preempt|handoff|injectglist|globrunq|dropg|mPark|gosched|goyield|morestack|newstack|copystack|nanotime|asyncPreempt|Gosched|(un)?lock2)|sync\.|internal/sync\.|internal/runtime/(atomic|exithook)|sync/atomic)`)},
	{"memory", regexp.MustCompile(`^(runtime\.(\(\*(mspan|mheap|mcache|mcentral|gcWork|gcBits|gcControllerState|limiterEvent|activeSweep|sweepLocked|pageAlloc|fixalloc|workType|scanState|unwinder|stkframe|spanInlineMarkBits|spanSet|spanScanOwnership|consistentHeapStats|typePointers|lfstack|atomicHeadTailIndex)\)|typePointers|\(\*?typePointers\)|malloc|new(object|array)|makeslice|growslice|gc|scan|greyobject|mark|sweep|bg|wb|memclr|nextFree|heapBits|heapSetType|findObject|span|deduct|profilealloc|bulkBarrier|typedmemmove|publicationBarrier|getMCache|tryDeferToSpanScan|pcvalue|pcdata|funcspdelta|adjust|step|readvarint|findfunc|stack)|internal/runtime/gc)`)},
	{"gRPC", regexp.MustCompile(`^(google\.golang\.org/grpc|golang\.org/x/net)`)},
	{"protobuf", regexp.MustCompile(`^google\.golang\.org/protobuf`)},
	{"api", regexp.MustCompile(`^github\.com/weirlimit/weir/(api|node|headers)`)},
	{"rules", regexp.MustCompile(`^github\.com/weirlimit/weir/rules`)},
	{"counters", regexp.MustCompile(`^github\.com/weirlimit/weir/(shard|algorithms|ring)`)},
	{"cluster", regexp.MustCompile(`^github\.com/weirlimit/weir/cluster`)},
	{"others", regexp.MustCompile(``)},
}

// copies are the functions that send and receive changes of counters for standbys, with all that they call.
const copies = `cluster/ownership\.\(\*Node\)\.serve|peerv1\._Replicas_(Feed|Post)_Handler`

// shares are the parts of each group in the time of all profiles together, and what of
// them is for copies.
func shares(b *testing.B, profiles []string) map[string]float64 {
	times, total := functions(b, profiles), 0.0
	all := make(map[string]float64)
	for name, ms := range times {
		i := slices.IndexFunc(groups, func(g group) bool { return g.match.MatchString(name) })
		all[groups[i].name] += ms
		total += ms
	}
	if total == 0 {
		b.Fatal("nothing in the profile")
	}
	for _, ms := range functions(b, profiles, "-focus="+copies) {
		all["copies"] += ms
	}
	for name := range all {
		all[name] /= total
	}
	return all
}

var topLine = regexp.MustCompile(`^\s*([\d.]+)(?:ms)?\s+[\d.]+%\s+[\d.]+%\s+[\d.]+(?:ms)?\s+[\d.]+%\s+(.+?)(?: \(inline\))?$`)

// functions are the milliseconds that the profiles have seen in each function itself.
func functions(b *testing.B, profiles []string, flags ...string) map[string]float64 {
	args := append([]string{"tool", "pprof", "-top", "-unit=ms", "-nodecount=0", "-nodefraction=0"}, flags...)
	cmd := exec.Command("go", append(args, profiles...)...)
	out, err := cmd.Output()
	if err != nil {
		b.Fatalf("%v: %v", cmd.Args, err)
	}
	times := make(map[string]float64)
	for line := range strings.Lines(string(out)) {
		m := topLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			continue
		}
		ms, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			b.Fatal(err)
		}
		times[m[2]] += ms
	}
	return times
}
