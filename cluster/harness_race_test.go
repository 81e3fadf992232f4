//go:build race

package cluster

// raced says that the race detector watches, which makes everything many times slower.
const raced = true
