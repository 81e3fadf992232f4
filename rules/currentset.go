package rules

import (
	"log/slog"
	"sync"
	"sync/atomic"
)

// current are the rules in force of a source that a node has by itself: files or a server. Its methods are safe
// for concurrent use.
type current struct {
	set atomic.Pointer[Set]

	mu       sync.Mutex
	err      error        // guarded by mu
	onChange []func(*Set) // guarded by mu
}

// Set returns the rules in force, never nil. A caller asks once per request, so
// that all its answers come from one set.
func (c *current) Set() *Set { return c.set.Load() }

// State returns the rules in force, which have no revisions.
func (c *current) State() *State { return &State{Set: c.Set()} }

// Err returns why the rules as they are now were refused, or nil if they are in
// force. It is a *LoadError.
func (c *current) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// OnChange registers f to be called with every set that comes into force after it. One call is made at a
// time, when Set returns that set already; f should not block, because no change is seen meanwhile. A
// change of comments only is none. A function registered before Run misses none.
func (c *current) OnChange(f func(*Set)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onChange = append(c.onChange, f)
}

func (c *current) setErr(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

func (c *current) tell(set *Set) {
	c.mu.Lock()
	hooks := c.onChange
	c.mu.Unlock()
	for _, f := range hooks {
		f(set)
	}
}

// refuse notes that rules were refused, and that those in force stay.
func (c *current) refuse(err error, m *metrics, log *slog.Logger, from string) {
	c.setErr(err)
	m.refused()
	log.Error("rules refused, the last good ones stay", "path", from, "rules_hash", c.Set().Hash(), "error", err)
}

// use puts a good set in force, and calls the functions of OnChange if it differs from the one before.
func (c *current) use(set *Set, m *metrics, log *slog.Logger, from string) {
	before := c.Set()
	changed := set.Hash() != before.Hash() || before.Missing()
	if changed {
		c.set.Store(set)
	}
	c.setErr(nil)
	m.loadedSet(set)
	warn(log, set.Warnings())
	log.Info("rules loaded", "path", from, "rules_hash", set.Hash(), "rules", set.Len(), "changed", changed)
	if changed {
		c.tell(set)
	}
}
