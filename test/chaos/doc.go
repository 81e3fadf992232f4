// Package chaos holds real nodes to the promises of the design while they join, leave,
// die, stall and are cut off, under a load of 2,000 checks a second whose callers keep
// account of what they were granted. `make chaos` runs it in full. Without the flag
// -full a short form runs: a part of it with all tests, the whole of it with RUN_ALL_TESTS=1. docs/reference/faults.md has what was seen.
package chaos
