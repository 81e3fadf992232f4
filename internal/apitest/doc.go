// Package apitest provides what the tests of all APIs and of the Go client share. No program imports it.
//
//   - Node decides with a shard of its own, and Status and FixedRules answer for the rest of a node: with them a test
//     serves the real API without a cluster. NewLimiter takes the Node, Register the Status, NewConfigServer the rules.
//   - Descriptors and BriefEnvoy write requests and responses of Envoy as short texts.
//   - DrawMessage, Encodings and Decoder compare decoders written by hand with the library of protobuf.
//   - Checks reads weir_checks_total.
//
// Nothing of it starts a goroutine or leaves anything behind. Package inmemory has the listener for it.
package apitest
