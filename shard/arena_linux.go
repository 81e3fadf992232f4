package shard

import "golang.org/x/sys/unix"

// reserve returns zeroed memory of a size in bytes, aligned to pages, that takes none
// before it is written to: in small pages, so that it takes no more than what is used, whatever the
// kernel is set to.
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

// forget gives pages back to the kernel, which then reads as zero. Where the kernel's are
// larger than ours, it would take the neighbours with them: then it only zeroes them.
func forget(memory []byte) (given bool) {
	if unix.Getpagesize() == pageBytes && unix.Madvise(memory, unix.MADV_DONTNEED) == nil {
		return true
	}
	clear(memory)
	return false
}

// layTogether makes one huge page of memory that is of its size, and lies as it would. If it has not, it says
// whether it might another time.
func layTogether(memory []byte) (done, again bool) {
	if unix.Getpagesize() != pageBytes || unix.Madvise(memory, unix.MADV_HUGEPAGE) != nil {
		return false, false
	}
	err := unix.Madvise(memory, unix.MADV_COLLAPSE) // since Linux 6.1
	// Else the kernel might some time fill up with empty pages what was given back.
	_ = unix.Madvise(memory, unix.MADV_NOHUGEPAGE)
	return err == nil, err != unix.EINVAL
}
