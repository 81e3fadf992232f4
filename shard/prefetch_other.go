//go:build !amd64 && !arm64

package shard

import "unsafe"

func prefetch(unsafe.Pointer) {}
