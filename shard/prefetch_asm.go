//go:build amd64 || arm64

package shard

import "unsafe"

// prefetch loads a cache line and the next one into the cache, and does not wait for them.
//
//go:noescape
func prefetch(at unsafe.Pointer)
