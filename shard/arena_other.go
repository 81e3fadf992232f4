//go:build !linux

package shard

// On systems other than Linux the tables' memory is on the heap, and stays there.

func reserve(size int) ([]byte, error) { return make([]byte, size), nil }

func unreserve([]byte) {}

func forget(memory []byte) (given bool) {
	clear(memory)
	return false
}

func collapsePages([]byte) (done, again bool) { return false, false }
