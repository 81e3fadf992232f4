package main

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

const dir = "../../api/openapi"

func TestDocumentIsCurrent(t *testing.T) {
	want, err := build(dir)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "openapi.json"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("api/openapi/openapi.json is not current; run make generate")
	}
}

// TestServedPathsAreDocumented looks for what is served in the sources of the packages api and api/envoy, and in
// gateway.yaml. That what is documented is served is a test of test/e2e.
func TestServedPathsAreDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(dir, "openapi.json"))
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Paths map[string]map[string]any
	}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	served := slices.Concat(patterns(t, "../../api"), patterns(t, "../../api/envoy"), bindings(t, "../../api/weir/v1/gateway.yaml"))
	if len(served) < 20 {
		t.Fatalf("only %q are served", served)
	}
	for _, pattern := range served {
		method, path, found := strings.Cut(pattern, " ")
		if !found {
			method, path = "GET", pattern
		}
		if document.Paths[path][strings.ToLower(method)] == nil {
			t.Errorf("%s is served, but not in api/openapi/openapi.json; describe it in handwritten.yaml", pattern)
		}
	}
}

// patterns returns those that the package registers with a ServeMux. What is served by
// the gateway is in bindings.
func patterns(t *testing.T, pkg string) (found []string) {
	t.Helper()
	files, err := filepath.Glob(pkg + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 2 {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || method.Sel.Name != "Handle" && method.Sel.Name != "HandleFunc" {
				return true
			}
			if variable, ok := call.Args[0].(*ast.Ident); ok && variable.Name == "pattern" {
				return true // passed on by a ServeMux of our own, or of the table of roles, which has those of all paths
			}
			literal, ok := call.Args[0].(*ast.BasicLit)
			if !ok {
				t.Errorf("%s: a pattern that is no constant cannot be looked up", name)
				return true
			}
			pattern, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			switch pattern {
			case "/v1/", "/v1/rules:apply": // the gateway's
			case "/debug/pprof/": // pages of net/http/pprof, for people
			default:
				found = append(found, pattern)
			}
			return true
		})
	}
	return found
}

func bindings(t *testing.T, name string) (found []string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var gateway struct {
		HTTP struct{ Rules []map[string]string }
	}
	if err := yaml.Unmarshal(text, &gateway); err != nil {
		t.Fatal(err)
	}
	rename := strings.NewReplacer("rate_limit.", "", "=**", "")
	for _, rule := range gateway.HTTP.Rules {
		for key, value := range rule {
			if key != "selector" && key != "body" {
				found = append(found, strings.ToUpper(key)+" "+rename.Replace(value))
			}
		}
	}
	return found
}

func TestMerge(t *testing.T) {
	tree := func(text string) (m map[string]any) {
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	got := merge(tree(`{"a": 1, "b": {"c": 2, "d": {"e": 3}}}`), tree(`{"b": {"c": 4, "d": {"f": 5}}, "g": {"h": 6}}`))
	if want := tree(`{"a": 1, "b": {"c": 4, "d": {"e": 3, "f": 5}}, "g": {"h": 6}}`); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
