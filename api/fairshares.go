package api

import "sync/atomic"

// fairShares bounds how many calls a node has, and has connections share them. One connection alone may have most. If there are half of these, connections get no
// more that have more than their share of the rest: together all have little more than most, and fewCalls on each.
type fairShares struct {
	most    int64
	total   atomic.Int64
	holders atomic.Int64 // connections with more than fewCalls
}

// change counts that a connection has another number.
func (f *fairShares) change(before, after int) {
	if before == after {
		return
	}
	f.total.Add(int64(after - before))
	switch many := after > fewCalls; {
	case many == (before > fewCalls):
	case many:
		f.holders.Add(1)
	default:
		f.holders.Add(-1)
	}
}

// areMany reports whether there are half of most.
func (f *fairShares) areMany() bool { return f.total.Load() > f.most/2 }

// exceed reports whether there are, and that number is more than the share of a connection.
func (f *fairShares) exceed(mine int) bool {
	return f.areMany() && int64(mine) > max(fewCalls, f.most/max(2*f.holders.Load()-1, 1))
}
