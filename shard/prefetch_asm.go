//go:build amd64 || arm64

package shard

import "unsafe"

// prefetch asks for the memory of a cache line and of the next one, and does not wait for it.
//
//go:noescape
func prefetch(at unsafe.Pointer)
