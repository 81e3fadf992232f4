package api

import "runtime"

// readTurns has the connections of a node be read in turns. Each call that is read becomes a goroutine, and the scheduler of Go runs these in the order in which
// they came: so what one connection may have read at once is what the calls of all others wait for.
type readTurns struct {
	most int // bytes that are read next; 0 at first
}

// next returns the part of b to read into. If many calls were read last, their goroutines go first, and the part is small.
func (r *readTurns) next(b []byte, calls int, late bool) []byte {
	switch {
	case calls > manyCalls:
		r.most = littleRead
		runtime.Gosched()
	case late, r.most == 0:
		r.most = littleRead
	default: // large messages are read in few pieces
		r.most = min(2*r.most, mostRead)
	}
	return b[:min(len(b), r.most)]
}
