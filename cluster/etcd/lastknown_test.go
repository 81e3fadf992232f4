package etcd

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/view"
)

// params are those of a small cluster, as stored.
func params(t *testing.T, secret string) []byte {
	t.Helper()
	b, err := json.Marshal(cluster.Params{Format: cluster.Format, Ring: smallRing, Secret: []byte(secret)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func known(t *testing.T) *Known {
	t.Helper()
	return &Known{
		Params: params(t, "0123456789abcdef"), Incarnation: 7, View: viewOf(3, "a", "b"), Rules: []byte("rules"), Tokens: []byte("tokens"),
		Revoked: []RevokedToken{{Name: "early", Digest: []byte("digest")}},
	}
}

func openState(t *testing.T, dir string) (*State, *logRecorder) {
	t.Helper()
	logs := newLogRecorder()
	s, err := OpenState(dir, "test", "a", slog.New(logs))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, logs
}

// keep has k written to disk.
func keep(s *State, k *Known) {
	s.Keep(func(to *Known) { *to = *k })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.Run(ctx)
}

// A newer view is written a moment after it came, or at the end.
func TestViewsAreWrittenLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s, _ := openState(t, dir)
		keep(s, known(t))
		first := known(t).View
		written := func() uint64 {
			stored, err := ReadStored(dir)
			if err != nil {
				t.Fatal(err)
			}
			return stored.Known.View.Number
		}
		after := func(n uint64) *view.View {
			later := *first
			later.Number += n
			return &later
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.Run(ctx)
		}()
		synctest.Wait() // until what was kept is written again
		s.KeepView(after(1))
		time.Sleep(saveViewIn - 1)
		synctest.Wait()
		if got := written(); got != first.Number {
			t.Errorf("view %d is written at once", got)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if got := written(); got != first.Number+1 {
			t.Errorf("view %d is written after %v, want %d", got, saveViewIn, first.Number+1)
		}
		s.KeepView(after(2))
		cancel()
		if <-ended; written() != first.Number+2 {
			t.Errorf("view %d is written in the end, want %d", written(), first.Number+2)
		}
	})
}

func TestStateIsFoundAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	s, _ := openState(t, dir)
	if s.Found() != nil || s.Err() != nil {
		t.Errorf("found %v, %v in an empty directory", s.Found(), s.Err())
	}
	want := known(t)
	keep(s, want)
	s.Close()
	again, logs := openState(t, dir)
	got := again.Found()
	if got == nil || len(logs.all()) > 0 {
		t.Fatalf("nothing found: %q", logs.all())
	}
	if !bytes.Equal(got.Params, want.Params) || got.Incarnation != 7 || string(got.Rules) != "rules" ||
		len(got.Revoked) != 1 || got.Revoked[0].Name != "early" || string(got.Revoked[0].Digest) != "digest" || !saySame(got.View, want.View) {
		t.Errorf("%+v, want %+v", got, want)
	}
	info, err := os.Stat(filepath.Join(dir, stateFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: every user can read the secret", info.Mode(), err)
	}
	keep(again, &Known{Params: want.Params, Incarnation: 8, View: want.View})
	again.Close()
	third, _ := openState(t, dir)
	if got := third.Found(); got.Incarnation != 8 || got.Rules != nil {
		t.Errorf("what was kept later is %+v", got)
	}
}

func TestStateBelongsToOneProcess(t *testing.T) {
	dir := t.TempDir()
	s, _ := openState(t, dir)
	if _, err := OpenState(dir, "test", "a", slog.New(slog.DiscardHandler)); err == nil || err.Error() != "data directory "+dir+": in use by another process; stop the node that runs there, or name another directory" {
		t.Errorf("a second process: %v", err)
	}
	s.Close()
	openState(t, dir)
}

// A file damaged on disk, or of another cluster, is refused as a whole.
func TestStateRefused(t *testing.T) {
	dir := t.TempDir()
	s, _ := openState(t, dir)
	keep(s, known(t))
	s.Close()
	file := filepath.Join(dir, stateFile)
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 1
	other := &State{cluster: "shop", node: "a", known: *known(t)}
	foreign, err := other.encode()
	if err != nil {
		t.Fatal(err)
	}
	bad := &State{cluster: "test", node: "a", known: *known(t)}
	bad.known.Params = params(t, "short")
	short, err := bad.encode()
	if err != nil {
		t.Fatal(err)
	}
	many := &State{cluster: "test", node: "a", known: *known(t)}
	many.known.Revoked = make([]RevokedToken, MaxRevoked+1)
	tooMany, err := many.encode()
	if err != nil {
		t.Fatal(err)
	}
	for want, data := range map[string][]byte{
		"revoked: 4001 tokens are more than 4000": tooMany,
		"it is damaged":                           flipped,
		"would be that of its content":            good[:len(good)-1],
		"does not begin":                          nil,
		"a newer version of weir has written it":  append([]byte("weir state 2"), good[len(stateMark)+1:]...),
		"an older version of weir has written it": append([]byte("weir state 0"), good[len(stateMark)+1:]...),
		`it is of node \"a\" of cluster \"shop\"`: foreign,
		"secret: 5 bytes are not 16":              short,
	} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		s, logs := openState(t, dir)
		if s.Found() != nil || logs.count("the state file of an earlier run cannot be used and is ignored") != 1 || logs.count(strings.ReplaceAll(want, `\`, ``)) != 1 {
			t.Errorf("%s: found %v, log %q", want, s.Found(), logs.all())
		}
		s.Close()
	}
	// A node that has never been a member has nothing to start from.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	s, _ = openState(t, dir)
	keep(s, &Known{Params: known(t).Params, Incarnation: 1})
	s.Close()
	if s, logs := openState(t, dir); s.Found() != nil || len(logs.all()) > 0 {
		t.Errorf("found %v without a view, log %q", s.Found(), logs.all())
	}
}

// A disk that fails is reported once, and no caller waits for it.
func TestStateOnBrokenDisk(t *testing.T) {
	inTheWay := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, logs := openState(t, filepath.Join(inTheWay, "dir"))
	for range 3 {
		keep(s, known(t))
	}
	if s.Err() == nil || s.Found() != nil || logs.count("cannot be written to disk") != 1 {
		t.Errorf("%v, log %q", s.Err(), logs.all())
	}

	dir := t.TempDir()
	s, logs = openState(t, dir)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	keep(s, known(t))
	keep(s, known(t))
	if s.Err() == nil || logs.count("cannot be written to disk") != 1 {
		t.Errorf("%v, log %q", s.Err(), logs.all())
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	keep(s, known(t))
	if s.Err() != nil || logs.count("is written to disk again") != 1 {
		t.Errorf("%v, log %q", s.Err(), logs.all())
	}
}

func TestStateWithoutDirectory(t *testing.T) {
	s, logs := openState(t, "")
	keep(s, known(t))
	if s.Err() != nil || s.Found() != nil || logs.count("no data directory") != 1 {
		t.Errorf("%v, log %q", s.Err(), logs.all())
	}
}
