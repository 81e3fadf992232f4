package etcd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"

	"github.com/weirlimit/weir/cluster/view"
)

// The file of a State is a line that says what it is, in which format, and the XXH64 of the
// rest, which is JSON.
const (
	stateFile    = "cluster-state"
	stateMark    = "weir state " // its version follows
	stateVersion = 1
	maxState     = 16 << 20               // bytes
	saveAgainIn  = 10 * time.Second       // after a failure
	saveViewIn   = 500 * time.Millisecond // after a newer view
)

// MaxRevoked is how many revoked tokens a node keeps: four times as many as a cluster has at most. They take at most 1 MiB on disk.
const MaxRevoked = 4000

// Known is what a node knows of what etcd has held.
type Known struct {
	// Params are the cluster's, as stored.
	Params []byte `json:"params"`
	// Incarnation is the last one of the node.
	Incarnation uint64 `json:"incarnation"`
	// View is the newest view, nil before the first.
	View *view.View `json:"-"`
	// Rules are the rules that were in force last, as stored; nil if there were none.
	Rules []byte `json:"rules,omitempty"`
	// Tokens are the tokens of the cluster, as stored; nil if there were none.
	Tokens []byte `json:"tokens,omitempty"`
	// Revoked are the tokens that this node has seen revoked, the oldest first. At most MaxRevoked are kept.
	Revoked []RevokedToken `json:"revoked,omitempty"`
}

// RevokedToken is a token that once stood in etcd.
type RevokedToken struct {
	Name   string `json:"name"`
	Digest []byte `json:"digest"` // SHA-256
}

// State keeps on disk what a node must know in order to start while etcd is unreachable. Its callers
// never wait for the disk, and a disk that cannot be written to does no harm before
// that start. Its methods may be called from several goroutines.
type State struct {
	dir, cluster, node string
	log                *slog.Logger
	lock               *fileutil.LockedFile // nil if the directory cannot be used
	found              *Known
	founding           []byte // see Stored

	refused error         // why nothing can be kept; told by Run, since an etcd in this process will say the same before
	changed chan struct{} // its slot is filled when there is something to write
	viewed  chan struct{} // its slot is filled when there is a newer view to write, in saveViewIn: nodes have other things to do when it comes

	mu    sync.Mutex
	known Known // guarded by mu; what is to be on disk
	err   error // guarded by mu; why it is not
}

// stateJSON is the JSON of a State's file.
type stateJSON struct {
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	Known
	View     json.RawMessage `json:"view,omitempty"`     // what cluster.MarshalView writes
	Founding []byte          `json:"founding,omitempty"` // see Stored
}

// OpenState takes a directory, which is made if it is missing, for the state of a node until
// Close. It fails if another process has the directory, or if counters for another node were imported
// there. Without dir nothing is kept.
func OpenState(dir, clusterName, node string, log *slog.Logger) (*State, error) {
	s := &State{dir: dir, cluster: clusterName, node: node, log: log, changed: make(chan struct{}, 1), viewed: make(chan struct{}, 1)}
	if dir == "" {
		log.Warn("no data directory: this node cannot start while etcd is unreachable")
		return s, nil
	}
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		s.lock, err = takeDir(dir)
	}
	if errors.Is(err, errDirInUse) {
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	if err != nil {
		s.refused = err
		return s, nil
	}
	switch s.found, s.founding, err = s.load(); {
	case errors.Is(err, errFoundsAnother):
		s.Close()
		return nil, fmt.Errorf("%s: %w", s.path(), err)
	case err != nil:
		log.Error("the state file of an earlier run cannot be used and is ignored", "file", s.path(), "error", err)
	}
	if s.found != nil {
		s.known = *s.found
	}
	return s, nil
}

// Founding returns the parameters with which this node is to found its cluster, as stored; nil if it may choose them.
func (s *State) Founding() []byte { return s.founding }

// Close gives the directory to others. It is called after Run has ended.
func (s *State) Close() {
	if s.lock != nil {
		_ = s.lock.Close() // the lock is gone in any case
	}
}

// Found returns what an earlier run has left, nil if there is nothing to start from.
func (s *State) Found() *Known { return s.found }

// Err returns why what is known is not on disk, nil if it is.
func (s *State) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Keep changes what is known. change must not block.
func (s *State) Keep(change func(*Known)) {
	s.mu.Lock()
	change(&s.known)
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default: // it has not been written since
	}
}

// KeepView changes the newest view that is known. It does not block.
func (s *State) KeepView(v *view.View) {
	s.mu.Lock()
	s.known.View = v
	s.mu.Unlock()
	select {
	case s.viewed <- struct{}{}:
	default:
	}
}

// Run writes what is kept until ctx ends, and once more then if need be.
func (s *State) Run(ctx context.Context) {
	if s.dir == "" {
		return
	}
	if s.refused != nil {
		s.note(s.refused)
	}
	again := time.NewTimer(saveAgainIn)
	defer again.Stop()
	var due <-chan time.Time // when a view is to be written; nil if it is
	for {
		select {
		case <-ctx.Done():
			if due != nil || len(s.changed) > 0 || len(s.viewed) > 0 {
				s.note(s.save())
			}
			return
		case <-s.viewed:
			if due == nil {
				due = time.After(saveViewIn)
			}
			continue
		case <-due:
		case <-s.changed:
		case <-again.C:
			if s.Err() == nil {
				continue
			}
		}
		due = nil
		s.note(s.save())
		again.Reset(saveAgainIn)
	}
}

// note tells when the disk begins to fail, and when it works again.
func (s *State) note(err error) {
	if err != nil {
		err = fmt.Errorf("%s: %w", s.path(), reason(err))
	}
	s.mu.Lock()
	was := s.err
	s.err = err
	s.mu.Unlock()
	switch {
	case err != nil && was == nil:
		s.log.Error("the state of this node cannot be written to disk, so it could not be started while etcd is unreachable", "error", err)
	case err == nil && was != nil:
		s.log.Info("the state of this node is written to disk again", "file", s.path())
	}
}

func (s *State) path() string { return filepath.Join(s.dir, stateFile) }

// save replaces the file.
func (s *State) save() error {
	data, err := s.encode()
	if err != nil {
		return err
	}
	return writeState(s.dir, data)
}

// writeState replaces the file in a directory. A reader sees the old or the new one, even if the machine dies.
func writeState(dir string, data []byte) error {
	path := filepath.Join(dir, stateFile)
	name := path + ".new"
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // there is a secret in it
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync())
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(name, path); err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (s *State) encode() ([]byte, error) {
	s.mu.Lock()
	known := s.known
	s.mu.Unlock()
	content := stateJSON{Cluster: s.cluster, Node: s.node, Known: known}
	if known.View != nil {
		var err error
		if content.View, err = view.Marshal(known.View); err != nil {
			return nil, err
		}
	}
	return encodeState(content)
}

func encodeState(content stateJSON) ([]byte, error) {
	body, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	return append(fmt.Appendf(nil, "%s%d %016x\n", stateMark, stateVersion, xxhash.Sum64(body)), body...), nil
}

// errFoundsAnother is that of a directory to which counters were imported, and not for this node.
var errFoundsAnother = errors.New("counters were imported for another node")

// load returns what is on disk: known is nil if there is nothing to start from, founding unless counters were imported.
func (s *State) load() (known *Known, founding []byte, err error) {
	stored, err := ReadStored(s.dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil, nil
	case err != nil:
		return nil, nil, err
	case stored.Cluster == s.cluster && stored.Node == s.node:
		return stored.Known, stored.Founding, nil
	case stored.Founding != nil:
		return nil, nil, fmt.Errorf("%w: start it as --cluster %s --id %s", errFoundsAnother, stored.Cluster, stored.Node)
	}
	return nil, nil, fmt.Errorf("it is of node %q of cluster %q, and this is node %q of cluster %q: give each node a data directory of its own", stored.Node, stored.Cluster, s.node, s.cluster)
}

// otherState says what a file is that does not begin as this version's.
func otherState(head []byte) error {
	var version uint64
	if _, err := fmt.Sscanf(string(head), stateMark+"%d ", &version); err != nil {
		return fmt.Errorf("it does not begin with %q, so weir has not written it", stateMark)
	}
	return &view.VersionError{Subject: "it", Got: version, Reads: stateVersion}
}

// parseState reads the content of the file.
func parseState(data []byte) (*Stored, error) {
	head, body, _ := bytes.Cut(data, []byte("\n"))
	var content stateJSON
	switch {
	case len(data) > maxState:
		return nil, fmt.Errorf("it has more than %d bytes", maxState)
	case !bytes.HasPrefix(head, fmt.Appendf(nil, "%s%d ", stateMark, stateVersion)):
		return nil, otherState(head)
	}
	if want := fmt.Sprintf("%s%d %016x", stateMark, stateVersion, xxhash.Sum64(body)); string(head) != want {
		return nil, fmt.Errorf("it is damaged: its first line is %q, and %q would be that of its content", head, want)
	}
	if err := json.Unmarshal(body, &content); err != nil {
		return nil, err
	}
	s := &Stored{Cluster: content.Cluster, Node: content.Node, Founding: content.Founding}
	if len(s.Founding) > 0 {
		if _, err := ParseParams(s.Founding); err != nil {
			return nil, err
		}
	}
	if len(content.Params) == 0 || len(content.View) == 0 {
		return s, nil // it has never been a member of anything
	}
	if _, err := ParseParams(content.Params); err != nil {
		return nil, err
	}
	stored, err := view.Unmarshal(content.View)
	if err != nil {
		return nil, err
	}
	if n := len(content.Revoked); n > MaxRevoked {
		return nil, fmt.Errorf("revoked: %d tokens are more than %d", n, MaxRevoked)
	}
	known := content.Known
	known.View = stored
	s.Known = &known
	return s, nil
}
