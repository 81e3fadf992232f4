// Package envoy tests Weir behind a real Envoy, with the configuration in docs/envoy.md.
package envoy
