//go:build amd64 || arm64

package shard

// prefetch asks for the memory of a slot and of the one after next, and does not wait for it.
//
//go:noescape
func prefetch(s *slot)
