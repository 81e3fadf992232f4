package node

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/cluster/etcd"
	"github.com/weirlimit/weir/cluster/snapshot"
)

// exported returns the path of a file with the counters of a node that has taken 10 tokens of each of so many keys, and the node's
// data directory.
func exported(t *testing.T, keys int) (file, dir string) {
	t.Helper()
	opts := testOptions(t)
	n, stop := startBuilt(t, opts)
	use(n, keys, 10)
	stop()
	file = filepath.Join(t.TempDir(), "counters")
	found, err := ExportCounters(ExportOptions{File: file, Dirs: []string{opts.DataDir}, Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	if found.Counters != keys || found.Expired != 0 || found.Missing != 0 || found.Cluster != "default" || len(found.Nodes) != 1 || found.Nodes[0].ID != "a" {
		t.Errorf("exported %+v", found)
	}
	return file, opts.DataDir
}

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

func TestExportRefuses(t *testing.T) {
	t.Parallel()
	file, dir := exported(t, 10)
	_, other := exported(t, 10)
	empty := t.TempDir()
	imported, starting := importOf(t, file), importOf(t, file)
	for _, o := range []ImportOptions{imported, starting} {
		if _, err := ImportCounters(o); err != nil {
			t.Fatal(err)
		}
	}
	unlock, err := etcd.LockDir(starting.Dir) // as a node does before it is a member
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	for _, tc := range []struct {
		name string
		file string
		dirs []string
		want string
	}{
		{"an existing file", file, []string{dir}, "file exists"},
		{"no directory", file + "2", nil, "there is none to export from"},
		{"an empty directory", file + "2", []string{empty}, "no node has run there"},
		{"a directory twice", file + "2", []string{dir, dir}, "named twice"},
		{"two clusters", file + "2", []string{dir, other}, "is of another cluster than"},
		{"what no node has used", file + "2", []string{imported.Dir}, "has never been a member"},
		{"a node that is about to start", file + "2", []string{starting.Dir}, "stop the node that runs there"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := ExportCounters(ExportOptions{File: tc.file, Dirs: tc.dirs}); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %s", err, tc.want)
			}
		})
	}
	if _, err := os.Stat(file + "2"); !os.IsNotExist(err) {
		t.Errorf("a refused export has left a file: %v", err)
	}
	if entries, err := os.ReadDir(empty); err != nil || len(entries) > 0 {
		t.Errorf("a directory was written to: %v, %v", entries, err)
	}
}

// Of two snapshots of a partition the newer one is exported, with the grants of both; without any there is no export.
func TestExportChoosesTheNewest(t *testing.T) {
	t.Parallel()
	_, dir := exported(t, 10)
	stored, err := etcd.ReadStored(dir)
	if err != nil {
		t.Fatal(err)
	}
	params, err := etcd.ParseParams(stored.Known.Params)
	if err != nil {
		t.Fatal(err)
	}
	second := t.TempDir()
	state, err := os.ReadFile(filepath.Join(dir, "cluster-state"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(second, "cluster-state"), state, 0o600); err != nil {
		t.Fatal(err)
	}
	write := func(dir string, parts ...snapshot.Partition) {
		head := snapshot.Head{Cluster: fingerprint(params), Partitions: uint32(params.Ring.Partitions), Node: "a", Time: 1}
		_, err := snapshot.Save(dir, head, func(w *snapshot.Writer) error {
			for _, p := range parts {
				if err := w.Add(p); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	records := func(latest byte) []byte { return []byte{1, latest, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} } // a clock
	write(dir, snapshot.Partition{Number: 3, Term: 7, Sequence: 5, Records: records(1), Grants: []byte("x")}, snapshot.Partition{Number: 4, Term: 8, Records: records(2)})
	write(second, snapshot.Partition{Number: 3, Term: 7, Sequence: 6, Records: records(3), Grants: []byte("y")}, snapshot.Partition{Number: 4, Term: 7, Sequence: 9, Records: records(4)})
	o := ExportOptions{File: filepath.Join(t.TempDir(), "counters"), Dirs: []string{dir, second}}
	if _, err := ExportCounters(o); err == nil || !strings.Contains(err.Error(), "1019 of 1021 partitions are in none of the directories") {
		t.Errorf("exported a part: %v", err)
	}
	o.Partial = true
	if found, err := ExportCounters(o); err != nil || found.Missing != 1019 || found.Grants != 1 {
		t.Errorf("%+v, %v", found, err)
	}
	c, err := openCounters(o.File)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.f.Close() }() // it is read only
	var got []snapshot.Partition
	err = c.each(func(p snapshot.Partition) error {
		p.Records, p.Grants = bytes.Clone(p.Records), bytes.Clone(p.Grants)
		got = append(got, p)
		return nil
	})
	slices.SortFunc(got, func(a, b snapshot.Partition) int { return int(a.Number) - int(b.Number) })
	if err != nil || len(got) != 2 || !bytes.Equal(got[0].Records, records(3)) || string(got[0].Grants) != "xy" || !bytes.Equal(got[1].Records, records(2)) || len(got[1].Grants) > 0 {
		t.Errorf("exported %+v, %v", got, err)
	}
	for _, p := range got {
		if p.Term != 1 || p.Sequence != 0 {
			t.Errorf("partition %d has term %d and sequence %d", p.Number, p.Term, p.Sequence)
		}
	}
}
