package inmemory

import (
	"context"
	"sync"
)

// Rules is a rules.Backend in memory: one value with a revision, as a cluster has it in etcd. The zero Rules is empty.
// A test changes the fields only while no store makes a call.
type Rules struct {
	mu    sync.Mutex
	heard []func([]byte) // guarded by mu

	// Value is what is stored, nil for nothing, and Revision counts the changes.
	Value    []byte
	Revision int64
	// Deaf is true while no function of Subscribe is called, as when a watch is late.
	Deaf bool
	// Err is the error of every call, if it is not nil.
	Err error
	// Meddle returns what another node stores before each swap. Nil stores nothing.
	Meddle func() []byte
}

// ReadRules implements rules.Backend. The revision of nothing is 0.
func (r *Rules) ReadRules(context.Context) (value []byte, revision int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Value, r.current(), r.Err
}

// SwapRules implements rules.Backend: it stores value if revision is the current one, and returns the next one, or else 0.
func (r *Rules) SwapRules(_ context.Context, value []byte, revision int64) (next int64, err error) {
	if r.Meddle != nil {
		r.Put(r.Meddle())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Err != nil || r.current() != revision {
		return 0, r.Err
	}
	return r.put(value), nil
}

// Put stores value, nil for none, at any revision. It returns the new revision.
func (r *Rules) Put(value []byte) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.put(value)
}

// Subscribe calls update with each value that is stored from now on, before the call that stores it returns. update must
// not call r.
func (r *Rules) Subscribe(update func(value []byte)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = append(r.heard, update)
}

func (r *Rules) put(value []byte) int64 {
	r.Value = value
	r.Revision++
	if !r.Deaf {
		for _, update := range r.heard {
			update(value)
		}
	}
	return r.Revision
}

func (r *Rules) current() int64 {
	if r.Value == nil {
		return 0
	}
	return r.Revision
}
