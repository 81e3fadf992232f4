package node

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/cluster/snapshot"
)

func importOf(t *testing.T, file string) ImportOptions {
	t.Helper()
	return ImportOptions{File: file, Dir: filepath.Join(t.TempDir(), "new"), Cluster: "two", ID: "x", Now: time.Now()}
}

func TestExportedCountersAreImported(t *testing.T) {
	t.Parallel()
	const keys = 3000
	file, _ := exported(t, keys)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, %v", info.Mode(), err)
	}
	o := importOf(t, file)
	o.DryRun = true
	later := o
	later.Now = later.Now.Add(365 * 24 * time.Hour)
	if found, err := ImportCounters(later); err != nil || found.Expired != keys {
		t.Errorf("a year later %+v, %v", found, err)
	}
	if found, err := ImportCounters(o); err != nil || found.Counters != keys || found.Expired != 0 || found.Partitions != 1021 {
		t.Errorf("dry run: %+v, %v", found, err)
	}
	if _, err := os.Stat(o.Dir); !os.IsNotExist(err) {
		t.Errorf("the dry run has made the directory: %v", err)
	}
	o.DryRun = false
	if _, err := ImportCounters(o); err != nil {
		t.Fatal(err)
	}
	if _, err := ImportCounters(o); err == nil || !strings.Contains(err.Error(), "pass --replace to replace it") {
		t.Errorf("imported over an import: %v", err)
	}
	o.Replace = true
	if _, err := ImportCounters(o); err != nil {
		t.Errorf("imported again: %v", err)
	}
	opts := testOptions(t)
	opts.ID, opts.Cluster, opts.DataDir = o.ID, o.Cluster, o.Dir
	n, stop := startBuilt(t, opts)
	if left := use(n, keys, 1); slices.Min(left) != 989 || slices.Max(left) != 989 {
		t.Errorf("%d to %d tokens are left, want 989", slices.Min(left), slices.Max(left))
	}
	if _, err := ImportCounters(o); err == nil || !strings.Contains(err.Error(), "in use by another process; stop the node") {
		t.Errorf("imported while the node runs: %v", err)
	}
	o.DryRun = true
	if _, err := ImportCounters(o); err == nil || !strings.Contains(err.Error(), "in use by another process; stop the node") {
		t.Errorf("dry run while the node runs: %v", err)
	}
	o.DryRun = false
	if _, err := ExportCounters(ExportOptions{File: file + "2", Dirs: []string{o.Dir}}); err == nil || !strings.Contains(err.Error(), "in use by another process; stop the node") {
		t.Errorf("exported while the node runs: %v", err)
	}
	stop()
	if _, err := ImportCounters(o); err == nil || !strings.Contains(err.Error(), `node "x" of cluster "two" has run there`) {
		t.Errorf("imported over the counters of a node: %v", err)
	}
}

// A file that is not whole is refused before anything is written.
func TestImportOfABadFile(t *testing.T) {
	t.Parallel()
	file, dir := exported(t, 100)
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile(snapshot.Path(dir))
	if err != nil {
		t.Fatal(err)
	}
	changed := func(at int) []byte {
		b := bytes.Clone(good)
		b[at] ^= 1
		return b
	}
	first := bytes.IndexByte(good, '\n') + 1
	second := first + bytes.IndexByte(good[first:], '\n') + 1
	for _, tc := range []struct {
		name    string
		content []byte
		want    string
	}{
		{"empty", nil, "it is torn or no export of counters"},
		{"torn in its head", good[:first+10], "it is torn"},
		{"torn", good[:len(good)-5], "it is torn"},
		{"longer", append(bytes.Clone(good), 0), "bytes after its end"},
		{"damaged in its head", changed(first + 10), "it is damaged: the checksum"},
		{"damaged", changed(second + (len(good)-second)/2), "it is damaged: the checksum"},
		{"newer", append([]byte("weir export 2"), good[len("weir export 1"):]...), "a newer version of weir has written it"},
		{"newer counters", append(append(bytes.Clone(good[:second]), "weir snapshot 9"...), good[second+len("weir snapshot 9"):]...), "a newer version of weir has written it"},
		{"a snapshot", own, "it is no export of counters"},
		{"another file", bytes.Repeat([]byte("x"), 5<<10), "it is no export of counters"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := importOf(t, filepath.Join(t.TempDir(), "bad"))
			if err := os.WriteFile(o.File, tc.content, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := ImportCounters(o); err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), o.File) {
				t.Errorf("%v, want %s", err, tc.want)
			}
			if _, err := os.Stat(o.Dir); !os.IsNotExist(err) {
				t.Errorf("the directory was made: %v", err)
			}
		})
	}
}

// Counters of another cluster, whose head is whole, are not taken for those of the file's cluster.
func TestImportOfForeignCounters(t *testing.T) {
	t.Parallel()
	split := func() (head, rest []byte) {
		file, _ := exported(t, 10)
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		at := bytes.Index(b, []byte("weir snapshot"))
		return b[:at], b[at:]
	}
	head, _ := split()
	_, rest := split()
	o := importOf(t, filepath.Join(t.TempDir(), "mixed"))
	if err := os.WriteFile(o.File, append(bytes.Clone(head), rest...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ImportCounters(o); err == nil || !strings.Contains(err.Error(), "its counters are of another cluster than it says") {
		t.Error(err)
	}
}
