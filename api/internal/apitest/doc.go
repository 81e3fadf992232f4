// Package apitest provides what tests of all APIs share: a decider, a listener in memory, messages of any content, and
// requests of Envoy as short texts.
package apitest
