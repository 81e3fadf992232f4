package rules

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// Change stores what edit makes of the rules as they are stored now, and waits for
// a moment until it is in force here. It returns the states before and after; they
// are the same if edit changes nothing. When dry it stores nothing.
//
// An edit that is refused leaves all as it was, with one of the errors above or a
// *LoadError. After any other error the change may have been made or not.
func (s *Store) Change(ctx context.Context, dry bool, edit Edit) (old, next *State, err error) {
	if old, next, err = s.changeStored(ctx, dry, edit); err == nil && !dry {
		s.awaitRevision(ctx, next.Revision)
	}
	return old, next, err
}

func (s *Store) changeStored(ctx context.Context, dry bool, edit Edit) (old, next *State, err error) {
	select {
	case s.changing <- struct{}{}:
		defer func() { <-s.changing }()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	for range maxAttempts {
		var at int64
		var lost bool
		if old, at, lost, err = s.base(ctx); err != nil {
			return nil, nil, err
		}
		if next, err = s.edit(old, edit); err == nil && next == old && lost {
			next = &State{Set: old.Set, Revision: old.Revision + 1, changed: old.changed}
		}
		if err != nil || next == old || dry {
			return old, next, err
		}
		value, err := next.marshal(s.cfg.MaxSize)
		if err != nil {
			return nil, nil, err
		}
		at, err = s.cfg.Backend.SwapRules(ctx, value, at)
		if err != nil {
			return nil, nil, err
		}
		if at != 0 {
			s.log.Info("rules stored", "revision", next.Revision, "rules_hash", next.Set.Hash(), "rules", next.Set.Len())
			return old, next, nil
		}
		select {
		case <-time.After(time.Millisecond + rand.N(attemptPause)):
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	return nil, nil, fmt.Errorf("%w: all %d attempts to store this change found that another change came first; try again", ErrChanged, maxAttempts)
}

// base returns the state to change, and the revision of the backend at which to
// replace it: the stored one, or the one in force if the stored one is older, gone
// or another of its revision: then the backend has lost it, and is to have it again even if the edit changes nothing. What
// cannot be read must not be overwritten.
func (s *Store) base(ctx context.Context) (state *State, at int64, lost bool, err error) {
	value, at, err := s.cfg.Backend.ReadRules(ctx)
	if err != nil {
		return nil, 0, false, err
	}
	here := s.State()
	if value == nil || bytes.Equal(value, here.stored) {
		return here, at, value == nil && here.Revision > 0, nil
	}
	stored, err := unmarshal(s.cfg.Name, value, s.cfg.Options)
	if err != nil {
		return nil, 0, false, fmt.Errorf("%w, because it cannot read those that are stored; ask a node of the version that wrote them, "+
			"or delete the key to begin with those in force here: %s", ErrReadOnly, err.Error())
	}
	if stored.Revision <= here.Revision {
		return here, at, true, nil
	}
	return stored, at, false, nil
}

// edit returns the state after old, which is old itself if nothing changes.
func (s *Store) edit(old *State, edit Edit) (*State, error) {
	docs, err := edit(old)
	if err != nil {
		return nil, err
	}
	set, err := s.cfg.Options.compile(editName, docs)
	if err != nil {
		return nil, err
	}
	diff := Diff(old.Set, set)
	if set.Hash() == old.Set.Hash() && len(diff.Added)+len(diff.Changed)+len(diff.Removed) == 0 {
		return old, nil
	}
	next := &State{Set: set, Revision: old.Revision + 1, changed: make(map[ruleName]int64, set.Len())}
	for r := range set.Rules() {
		name := ruleName{r.Domain, r.ID}
		next.changed[name] = old.changed[name]
	}
	for _, r := range diff.Added {
		next.changed[ruleName{r.Domain, r.Spec.ID}] = next.Revision
	}
	for _, r := range diff.Changed {
		next.changed[ruleName{r.Domain, r.New.ID}] = next.Revision
	}
	return next, nil
}

// awaitRevision waits until that revision or a later one is in force here. It has
// been stored already: if it does not come back in time, it will later.
func (s *Store) awaitRevision(ctx context.Context, revision int64) {
	late := time.NewTimer(inForceWait)
	defer late.Stop()
	for {
		s.mu.Lock()
		inForce := s.inForce
		s.mu.Unlock()
		if s.State().Revision >= revision {
			return
		}
		select {
		case <-inForce:
		case <-late.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Change refuses: the rules of files are changed in the files.
func (s *Source) Change(context.Context, bool, Edit) (old, next *State, err error) {
	return nil, nil, fmt.Errorf("%w: it takes them from %s; change them there, or start it without --rules", ErrReadOnly, s.path)
}
