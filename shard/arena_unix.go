//go:build unix

package shard

import "golang.org/x/sys/unix"

// reserve returns zeroed memory of a size in bytes, aligned to pages, that takes none
// before it is written to.
func reserve(size int) ([]byte, error) {
	return unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
}

func unreserve(memory []byte) {
	_ = unix.Munmap(memory) // it is one whole mapping: it cannot fail
}

// forget gives pages back to the kernel, which then reads as zero.
func forget(memory []byte) {
	if unix.Madvise(memory, unix.MADV_DONTNEED) != nil {
		clear(memory)
	}
}
