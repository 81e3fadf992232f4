package envoy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/test/process"
)

// repeated are six descriptors that have the same header, as a route may be limited by a user
// together with much else.
const repeated = `rate_limits:
                              - actions: [{request_headers: {header_name: x-user, descriptor_key: user}}]
                              - actions: [{request_headers: {header_name: x-user, descriptor_key: a}}]
                              - actions: [{request_headers: {header_name: x-user, descriptor_key: b}}]
                              - actions: [{request_headers: {header_name: x-user, descriptor_key: c}}]
                              - actions: [{request_headers: {header_name: x-user, descriptor_key: d}}]
                              - actions: [{remote_address: {}}, {request_headers: {header_name: x-user, descriptor_key: e}}]
`

// A long header, which six descriptors repeat, switches no limit off: neither the user's nor
// that of the address, in descriptors and in rules.
func TestLongHeader(t *testing.T) {
	binary(t)
	for name, text := range map[string]string{
		"descriptors": `domain: edge
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: remote_address, descriptors: [{key: e, rate_limit: {unit: day, requests_per_unit: 100}}]}
`,
		"rules": `domain: edge
rules:
  - {id: user, per: [user], limits: [{limit: 2, window: 10d, algorithm: fixed_window}]}
  - {id: client, per: [remote_address], limits: [{limit: 3, window: 10d, algorithm: fixed_window}]}
`,
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "rules.yaml")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			n := process.Start(t, "--rules", file)
			p := startProxy(t, []string{n.GRPC}, exportRoute, repeated)
			p.healthy(t, 2)
			user := strings.Repeat("u", 58<<10)
			for i, want := range []int{200, 200, 429} {
				if resp := p.get(t, "/export", user); resp.status != want {
					t.Errorf("request %d: %d %v, want %d", i, resp.status, resp.header, want)
				}
			}
			if name == "descriptors" {
				return
			}
			for i, want := range []int{200, 429} { // the address has three
				if resp := p.get(t, "/export", user[1:]); resp.status != want {
					t.Errorf("another user, request %d: %d %v, want %d", i, resp.status, resp.header, want)
				}
			}
		})
	}
}

// exportRoute is what the example limits /export by.
const exportRoute = `rate_limits:
                              - actions:
                                  - request_headers: {header_name: x-user, descriptor_key: user}
                              - actions:
                                  - generic_key: {descriptor_key: route, descriptor_value: export}
`
