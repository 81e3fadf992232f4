//go:build !unix

package shard

// Without mmap, the tables' memory is the heap's.

func reserve(size int) ([]byte, error) { return make([]byte, size), nil }

func unreserve([]byte) {}

func forget(memory []byte) { clear(memory) }
