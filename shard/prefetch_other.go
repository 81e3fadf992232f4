//go:build !amd64 && !arm64

package shard

func prefetch(*slot) {}
