//go:build !failpoint

package cluster

// failpoint is where a process of a test ends itself. This is what all others have of it.
func failpoint(string) {}
