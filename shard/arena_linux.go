package shard

import "golang.org/x/sys/unix"

// reserve returns zeroed memory of a size in bytes, aligned to pages. The kernel backs it with small pages
// when they are first written to, even if huge pages are enabled for all memory.
func reserve(size int) ([]byte, error) {
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err == nil {
		_ = unix.Madvise(memory, unix.MADV_NOHUGEPAGE) // a kernel without huge pages refuses
	}
	return memory, err
}

func unreserve(memory []byte) {
	_ = unix.Munmap(memory) // it is one whole mapping: it cannot fail
}

// forget returns pages to the kernel and reports success; either way they read as zero. Kernel pages larger
// than these would take the neighbours along, so then forget only zeroes them.
func forget(memory []byte) (given bool) {
	if unix.Getpagesize() == pageBytes && unix.Madvise(memory, unix.MADV_DONTNEED) == nil {
		return true
	}
	clear(memory)
	return false
}

// collapsePages makes one huge page of memory, which must have its size and alignment. If it fails, again
// reports whether another attempt may succeed.
func collapsePages(memory []byte) (done, again bool) {
	if unix.Getpagesize() != pageBytes || unix.Madvise(memory, unix.MADV_HUGEPAGE) != nil {
		return false, false
	}
	err := unix.Madvise(memory, unix.MADV_COLLAPSE) // since Linux 6.1
	// Otherwise the kernel might later fill the holes with empty pages again.
	_ = unix.Madvise(memory, unix.MADV_NOHUGEPAGE)
	return err == nil, err != unix.EINVAL
}
