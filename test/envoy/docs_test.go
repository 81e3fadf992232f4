package envoy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirlimit/weir/test/process"
)

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// skeleton is what somebody has already who pastes the page's parts into it.
const skeleton = `admin:
  address: {socket_address: {address: 127.0.0.1, port_value: 9901}}
static_resources:
  listeners:
    - name: edge
      address: {socket_address: {address: 127.0.0.1, port_value: 10000}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: edge
                http_filters:
                  FILTER
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      LIMITS
                      routes:
                        - match: {prefix: /}
                          route: {cluster: app}
  clusters:
    - name: app
      type: STRICT_DNS
      connect_timeout: 1s
      load_assignment:
        cluster_name: app
        endpoints:
          - lb_endpoints:
              - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 8000}}}
    CLUSTER
`

// Who pastes what the page shows is limited, by the rules of the page.
func TestPage(t *testing.T) {
	binary(t)
	page, err := os.ReadFile("../../docs/envoy.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := yamlBlock.FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 4 {
		t.Fatalf("%d blocks, want rules, filter, limits and cluster", len(blocks))
	}
	config := skeleton
	for i, place := range []string{"FILTER", "LIMITS", "CLUSTER"} {
		before, after, _ := strings.Cut(config, place)
		indent := before[strings.LastIndex(before, "\n")+1:]
		config = before + strings.ReplaceAll(strings.TrimSpace(blocks[i+1][1]), "\n", "\n"+indent) + after
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(blocks[0][1]), 0o600); err != nil {
		t.Fatal(err)
	}
	n := process.Start(t, "--rules", file)
	p := startEnvoy(t, config, []string{n.GRPC})
	for i := range 6 {
		resp := p.get(t, "/", "alice")
		if want := map[bool]int{true: 200, false: 429}[i < 5]; resp.status != want || resp.header.Get("X-RateLimit-Limit") != `5, 5;w=86400;name="per-user"` {
			t.Errorf("request %d: %d %v", i, resp.status, resp.header)
		}
	}
}

// What the page tells people to paste is in the example as well, but for how far it is
// indented.
func TestPageIsTheExample(t *testing.T) {
	read := func(path string) string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	unindent := func(text string) string {
		var lines []string
		for line := range strings.Lines(text) {
			lines = append(lines, strings.TrimSpace(line))
		}
		return strings.Trim(strings.Join(lines, "\n"), "\n")
	}
	tested := unindent(read(examples+"envoy.yaml")) + "\n" + unindent(read(examples+"rules.yaml"))
	for _, b := range yamlBlock.FindAllStringSubmatch(read("../../docs/envoy.md"), -1) {
		if !strings.Contains(tested, unindent(b[1])) {
			t.Errorf("not part of the examples:\n%s", b[1])
		}
	}
}
