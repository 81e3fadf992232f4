// Package check decides the requests of all APIs. It finds the limits that apply, has a decider take from their
// counters, and counts what became of them.
package check
