// Package chaos holds real nodes to the promises of the design while they join, leave,
// die, stall and are cut off, under a load of 2,000 checks a second whose callers keep
// account of what they were granted. `make chaos` runs it in full; without the flag
// -full a short form runs, as part of all tests. docs/chaos.md has what was seen.
package chaos
