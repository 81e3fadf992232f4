package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEndpointsAreComplete walks all places that have to know a method of the public API, and names
// those that do not.
func TestEndpointsAreComplete(t *testing.T) {
	atRoot(t)
	all, err := readEndpoints(api)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("found %d methods", len(all))
	}
	var document struct {
		Paths map[string]map[string]any
	}
	if err := json.Unmarshal(read(t, "api/openapi/openapi.json"), &document); err != nil {
		t.Fatal(err)
	}
	tried := exchanges(string(read(t, "test/e2e/openapi_test.go")))
	queries, node := string(read(t, "api/unknownquery.go")), string(read(t, "client/singlenode.go"))
	reference := string(read(t, pages, "reference/commands.md"))
	for _, e := range all {
		missing := func(format string, args ...any) {
			t.Helper()
			t.Errorf("%s: missing in "+format, append([]any{e.name}, args...)...)
		}
		command, listed := commands[e.name]
		switch {
		case !listed:
			missing("commands, in test/docreference/endpoints.go")
		case command != "" && !strings.Contains(reference, "\n## "+command+"\n"):
			missing("docs/reference/commands.md: %s", command)
		}
		if !strings.HasPrefix(e.comment, string(e.method.Name())+" ") {
			missing("the comments of %s: it has none that begins with its name", e.method.ParentFile().Path())
		}
		if service, name, _ := strings.Cut(e.name, "."); service != "RateLimiterConfig" && !e.method.IsStreamingClient() && !strings.Contains(node, "."+name+"(ctx, ") {
			missing("client/singlenode.go")
		}
		if !e.bound {
			missing("api/weir/v1/gateway.yaml, or byHand in test/docreference/endpoints.go; then run make generate")
			continue
		}
		if says := overHTTP.FindStringSubmatch(e.comment); says != nil && says[1] != e.binding {
			t.Errorf("%s: its comment in %s says %q, and api/weir/v1/gateway.yaml %q", e.name, e.method.ParentFile().Path(), says[0], e.binding)
		}
		verb, path, served := strings.Cut(e.binding, " ")
		if !served {
			continue
		}
		if document.Paths[path][strings.ToLower(verb)] == nil {
			missing("api/openapi/openapi.json: %s; run make generate", e.binding)
		}
		if !slices.ContainsFunc(tried, func(exchange string) bool { return pattern(e.binding).MatchString(exchange) }) {
			missing("exchanges, in test/e2e/openapi_test.go: %s", e.binding)
		}
		if e.readsQuery(verb, path) && !strings.Contains(queries, `"`+cutParameters(path)+`"`) {
			missing("queries, in api/unknownquery.go: %s", e.binding)
		}
	}
	for name := range commands {
		if !slices.ContainsFunc(all, func(e endpoint) bool { return e.name == name }) {
			t.Errorf("%s: is in commands, in test/docreference/endpoints.go, but in no .proto file", name)
		}
	}
}

// overHTTP is what a comment says of the binding.
var overHTTP = regexp.MustCompile(`Over HTTP: ([A-Z]+ /[^ ]*[^ .,:;])`)

// exchanges returns what TestOpenAPI asks for, such as "GET /v1/rules".
func exchanges(source string) (all []string) {
	for _, m := range regexp.MustCompile(`\{"([A-Z]+)", "(/[^"?]*)`).FindAllStringSubmatch(source, -1) {
		all = append(all, m[1]+" "+m[2])
	}
	return all
}

// pattern fits exchanges of a binding.
func pattern(binding string) *regexp.Regexp {
	parts := regexp.MustCompile(`\{[^}]*\}`).Split(binding, -1)
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, `[^/]+`) + "$")
}

// cutParameters returns a path up to its first parameter.
func cutParameters(path string) string {
	path, _, _ = strings.Cut(path, "{")
	return path
}

// readsQuery reports whether a request has fields that only a query can have.
func (e *endpoint) readsQuery(verb, path string) bool {
	fields := e.method.Input().Fields()
	return (verb == "GET" || verb == "DELETE") && fields.Len() > strings.Count(path, "{")
}
