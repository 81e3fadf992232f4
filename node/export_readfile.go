package node

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/etcd"
	"github.com/weirlimit/weir/cluster/snapshot"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/shard"
)

// A file of exported counters is a line that says what it is, in which format, and the XXH64 of the next line; that line, which is
// JSON, with its end; and a snapshot, as a node writes it.
const (
	exportMark      = "weir export " // its version follows
	exportVersion   = 1
	maxExportLine   = 64      // bytes of the first line
	maxExportOrigin = 1 << 20 // bytes of the JSON
)

// exportOrigin is the JSON of a file of exported counters.
type exportOrigin struct {
	Cluster string         `json:"cluster"`
	Params  []byte         `json:"params"` // as stored, with the secret
	Nodes   []ExportedNode `json:"nodes"`
}

// ExportedNode is a node whose snapshot was exported.
type ExportedNode struct {
	ID string `json:"id"`
	// Taken is when the node has written its snapshot, by its clock.
	Taken time.Time `json:"taken"`
}

// Counters says what a file of exported counters has.
type Counters struct {
	// Cluster is the name of the cluster that they are of.
	Cluster string
	Nodes   []ExportedNode
	// Partitions is how many the cluster has, and Missing of how many of them there is nothing.
	Partitions, Missing int
	// Counters is how many there are, and Expired how many of them are over.
	Counters, Expired int
	// Grants is of how many partitions there are tokens that were granted from a copy.
	Grants int
}

// counterFile is an open file of exported counters.
type counterFile struct {
	f      *os.File
	origin exportOrigin
	params cluster.Params
	begin  int64 // of the snapshot, in bytes
	size   int64 // of the snapshot, in bytes
}

// openCounters opens a file of exported counters and reads its head.
func openCounters(path string) (_ *counterFile, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = f.Close() // it is read only
			err = fmt.Errorf("%s: %w", path, err)
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("it is no regular file: its mode is %v", info.Mode())
	}
	in := bufio.NewReader(io.LimitReader(f, maxExportLine+maxExportOrigin))
	head, err := readLine(in, maxExportLine)
	if err != nil {
		return nil, err
	}
	sum, err := parseExportLine(head)
	if err != nil {
		return nil, err
	}
	origin, err := readLine(in, maxExportOrigin)
	if err != nil {
		return nil, err
	}
	if got := xxhash.Sum64(origin); got != sum {
		return nil, fmt.Errorf("it is damaged: the checksum in its first line is %016x, and its second line has %016x; export again", sum, got)
	}
	c := &counterFile{f: f, begin: int64(len(head) + len(origin))}
	c.size = info.Size() - c.begin
	if err := json.Unmarshal(origin, &c.origin); err != nil {
		return nil, err
	}
	c.params, err = etcd.ParseParams(c.origin.Params)
	return c, err
}

// readLine returns a line with its end.
func readLine(in *bufio.Reader, most int) (line []byte, err error) {
	for len(line) < most {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case errors.Is(err, io.EOF):
			return nil, errors.New("it is torn or no export of counters: it ends within one of its first two lines; export again")
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
	return nil, errNoExport
}

var errNoExport = fmt.Errorf("it is no export of counters: it does not begin with %q and a number", exportMark)

func parseExportLine(line []byte) (sum uint64, err error) {
	rest, isMark := strings.CutPrefix(strings.TrimSuffix(string(line), "\n"), exportMark)
	number, hex, _ := strings.Cut(rest, " ")
	version, err := strconv.ParseUint(number, 10, 32)
	switch {
	case !isMark || err != nil:
		return 0, errNoExport
	case version != exportVersion:
		return 0, &view.VersionError{Subject: "it", Got: version, Reads: exportVersion}
	}
	if sum, err = strconv.ParseUint(hex, 16, 64); err != nil {
		return 0, fmt.Errorf("it is damaged: its first line has no checksum, but %q; export again", hex)
	}
	return sum, nil
}

// each calls do for all partitions in the file. They count only if it returns nil.
func (c *counterFile) each(do func(snapshot.Partition) error) error {
	if _, err := c.f.Seek(c.begin, io.SeekStart); err != nil {
		return err
	}
	return snapshot.Read(c.f, c.size, func(h snapshot.Head) error {
		if h.Cluster != fingerprint(c.params) || int(h.Partitions) != c.params.Ring.Partitions {
			return fmt.Errorf("it is damaged: its counters are of another cluster than it says, %q; export again", c.origin.Cluster)
		}
		return nil
	}, do)
}

// survey reads the whole file and says what it has.
func (c *counterFile) survey(now time.Time) (Counters, error) {
	n := c.params.Ring.Partitions
	found := Counters{Cluster: c.origin.Cluster, Nodes: c.origin.Nodes, Partitions: n, Missing: n}
	seen := make([]bool, n)
	err := c.each(func(p snapshot.Partition) error {
		if seen[p.Number] {
			return fmt.Errorf("it is damaged: it has partition %d twice; export again", p.Number)
		}
		seen[p.Number] = true
		counters, expired, err := shard.Survey(p.Number, uint32(n), p.Records, now.UnixNano())
		if err != nil {
			return fmt.Errorf("it is damaged: %w", err)
		}
		found.Missing--
		found.Counters += counters
		found.Expired += expired
		if len(p.Grants) > 0 {
			found.Grants++
		}
		return nil
	})
	return found, err
}

// taken returns when the last of the snapshots in the file was written.
func (o exportOrigin) taken() (last time.Time) {
	for _, n := range o.Nodes {
		if n.Taken.After(last) {
			last = n.Taken
		}
	}
	return last
}
