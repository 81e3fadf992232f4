package rules

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Times and counts of a change.
const (
	maxAttempts  = 32                     // of one change, when others are faster
	attemptPause = 20 * time.Millisecond  // at most, at random, before the next
	inForceWait  = 500 * time.Millisecond // for what was stored to come back and be in force here
)

// Backend holds one value and changes it by compare-and-swap. Package cluster/etcd
// has one.
type Backend interface {
	// ReadRules returns the value as it is now, and the revision at which to replace
	// it: nil and 0 if there is none.
	ReadRules(ctx context.Context) (value []byte, revision int64, err error)
	// SwapRules stores value if what is stored is still at revision; 0 means that there must be nothing. It
	// returns the new revision, or 0 if another node was faster. After an error, value may have been stored
	// or not.
	SwapRules(ctx context.Context, value []byte, revision int64) (int64, error)
}

// StoreConfig says how to open a Store. Every field but Options and Known is required.
type StoreConfig struct {
	// Backend is where the rules are stored.
	Backend Backend
	// Name is what messages call the stored rules.
	Name string
	// Node is where callers ask this node for changes, as host:port. Messages about rules that the Backend has lost name it, as
	// only a node with the newer rules writes them again.
	Node string
	// MaxSize is how many bytes the Backend takes.
	MaxSize int
	// Options say how the rules are read.
	Options Options
	// Known is the value that an earlier run has had in force, nil for none. It stays in force if the Backend has an older one, as
	// a backend that was restored from a backup does.
	Known   []byte
	Logger  *slog.Logger
	Metrics prometheus.Registerer
}

// Store keeps the rules of a cluster up to date while Run runs and Update tells it
// what is stored, and changes them. Its methods are safe for concurrent use.
type Store struct {
	cfg     StoreConfig
	log     *slog.Logger
	metrics *metrics
	state   atomic.Pointer[State]

	wake     chan struct{} // its slot is filled when there is a value to look at
	again    chan struct{} // likewise, when Reread was called
	changing chan struct{} // its slot is filled while a change is made: here they queue, not at the backend

	seen []byte // the value that was looked at last. Owned by Run

	mu       sync.Mutex
	latest   []byte        // guarded by mu; the value that Update was given last
	inForce  chan struct{} // guarded by mu; closed and replaced with every new state
	err      error         // guarded by mu
	onChange []func(*Set)  // guarded by mu
}

// OpenStore reads the stored rules, and fails if they cannot be read or are
// refused: what an earlier run has known could be older. Before the first change
// there are none.
func OpenStore(ctx context.Context, cfg StoreConfig) (*Store, error) {
	value, _, err := cfg.Backend.ReadRules(ctx)
	if err != nil {
		return nil, err
	}
	s, err := RestoreStore(cfg, value)
	if err == nil && cfg.Known != nil {
		s.recall(value)
	}
	return s, err
}

// recall stays with the rules of an earlier run if value, the stored one, is not newer, and has Err and the log say why.
// Rules of an earlier run that cannot be read are ignored: the stored ones are good.
func (s *Store) recall(value []byte) {
	known, err := unmarshal(s.cfg.Name, s.cfg.Known, s.cfg.Options)
	if err != nil {
		s.log.Warn("the rules of an earlier run cannot be read and are ignored", "error", err)
		return
	}
	stored := s.State()
	s.state.Store(known)
	if _, err := s.judge(value); err == nil {
		s.state.Store(stored)
		return
	}
	s.metrics.loadedSet(known.Set)
	warn(s.log, known.Set.Warnings())
	s.look(value)
}

// RestoreStore is OpenStore while the Backend does not answer: it begins with a value that was
// stored before, nil for none.
func RestoreStore(cfg StoreConfig, value []byte) (_ *Store, err error) {
	state := &State{Set: &Set{how: cfg.Options}}
	if value != nil {
		if state, err = unmarshal(cfg.Name, value, cfg.Options); err != nil {
			return nil, err
		}
	}
	m, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("register the metrics of rules: %w", err)
	}
	m.loadedSet(state.Set)
	s := &Store{
		cfg: cfg, log: cfg.Logger, metrics: m,
		wake: make(chan struct{}, 1), again: make(chan struct{}, 1), changing: make(chan struct{}, 1),
		seen: value, latest: value, inForce: make(chan struct{}),
	}
	s.state.Store(state)
	warn(s.log, state.Set.Warnings())
	return s, nil
}

// Set returns the rules in force, never nil.
func (s *Store) Set() *Set { return s.state.Load().Set }

// State returns the rules in force with their revisions, never nil.
func (s *Store) State() *State { return s.state.Load() }

// Stored returns the value that the rules in force were read from, nil if there is none.
// Read-only.
func (s *Store) Stored() []byte { return s.State().stored }

// Err returns why the rules that are stored now are not in force, or nil if they
// are.
func (s *Store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// OnChange registers f to be called with every set that comes into force after it. Run calls it, one call
// at a time, when Set returns that set already; f should not block. A function registered before Run misses
// none.
func (s *Store) OnChange(f func(*Set)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onChange = append(s.onChange, f)
}

// Update tells what is stored now, nil if nothing is. It does not block, and keeps
// value.
func (s *Store) Update(value []byte) {
	s.mu.Lock()
	s.latest = value
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default: // it has not looked since the last token
	}
}

// Run puts into force what Update tells, until ctx ends, and then returns nil. At
// most one Run may run at a time.
//
// What cannot be read or is refused, is older than what is in force, or gone, is
// logged once; the set in force stays until something newer is stored.
func (s *Store) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.again:
			s.reread(ctx)
			continue
		case <-s.wake:
		}
		s.mu.Lock()
		value := s.latest
		s.mu.Unlock()
		if bytes.Equal(value, s.seen) {
			continue
		}
		s.seen = value
		s.look(value)
	}
}

// Reread has Run read the stored rules again, and log what comes of it also if they have not
// changed. It does not block.
func (s *Store) Reread() { wakeUp(s.again) }

func (s *Store) reread(ctx context.Context) {
	value, _, err := s.cfg.Backend.ReadRules(ctx)
	if err != nil {
		s.log.Warn("stored rules cannot be read again", "error", err)
		return
	}
	s.seen = value
	s.look(value)
}

// look puts a stored value into force if it is good and new.
func (s *Store) look(value []byte) {
	next, err := s.judge(value)
	old := s.State()
	switch {
	case err != nil:
		s.setErr(err)
		s.metrics.refused()
		s.log.Error("stored rules refused, the last good ones stay",
			"revision", old.Revision, "rules_hash", old.Set.Hash(), "error", err)
		return
	case next == old:
		s.setErr(nil)
		s.metrics.loadedSet(old.Set)
		s.log.Info("stored rules are those in force again", "revision", old.Revision)
		return
	}
	s.state.Store(next)
	s.metrics.loadedSet(next.Set)
	s.mu.Lock()
	s.err = nil
	close(s.inForce)
	s.inForce = make(chan struct{})
	hooks := s.onChange
	s.mu.Unlock()
	warn(s.log, next.Set.Warnings())
	s.log.Info("rules changed", "revision", next.Revision, "rules_hash", next.Set.Hash(), "rules", next.Set.Len())
	for _, f := range hooks {
		f(next.Set)
	}
}

// judge returns the state that a stored value leads to, which may be the one in
// force.
func (s *Store) judge(value []byte) (*State, error) {
	old := s.State()
	if value == nil {
		if old.Revision > 0 {
			return nil, fmt.Errorf("%s: revision %d of the rules is gone from etcd; %s", s.cfg.Name, old.Revision, s.remedy())
		}
		return old, nil
	}
	next, err := unmarshal(s.cfg.Name, value, s.cfg.Options)
	switch {
	case err != nil:
		return nil, err
	case next.Revision > old.Revision:
		return next, nil
	case next.Revision < old.Revision:
		return nil, fmt.Errorf("%s: etcd was restored: it has revision %d of the rules after revision %d; %s",
			s.cfg.Name, next.Revision, old.Revision, s.remedy())
	case !bytes.Equal(value, old.stored):
		return nil, fmt.Errorf("%s: etcd was restored: it has another revision %d of the rules; %s", s.cfg.Name, next.Revision, s.remedy())
	}
	return old, nil
}

// remedy says how the rules in force here come back to the backend. A change through a node that has them not begins with the older ones.
func (s *Store) remedy() string {
	return fmt.Sprintf("apply the rules through this node (weir rules apply --node %s), which writes all of them again", s.cfg.Node)
}

func (s *Store) setErr(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}
