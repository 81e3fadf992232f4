// Package envoy tests Weir behind a real Envoy, with the configuration that
// docs/envoy.md tells people to paste.
package envoy
