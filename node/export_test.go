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
