//go:build race

package cluster

// raced says that the race detector watches, which makes everything many times slower. Tests that repeat the same code then repeat it less.
const raced = true
