// Package algorithms provides the arithmetic of rate limits: pure steps from
// (limit, state, now, cost) to (state, decision).
//
// No step reads a clock, waits, locks or allocates. Instants are Unix
// nanoseconds and come in with the call; the caller keeps the State between
// calls and makes sure that two steps on one State never overlap. Algorithms
// that need more than the 16 bytes of a State keep a Long instead, which is
// changed in place and allocates while it grows.
package algorithms
