// Package envoy tests Weir behind a real Envoy, with the configuration in docs/envoy.md.
//
// The tests run in real time, and take more than 10 s together: Envoy is a process of its own, with timeouts and clocks that
// tests cannot set. Without its program, which ENVOY or PATH names, they are skipped.
package envoy
