package main

import (
	"strings"
	"testing"
)

// FuzzParseFile holds the configuration file's parser to naming the file in
// every error, and to yielding known options only.
func FuzzParseFile(f *testing.F) {
	for _, seed := range []string{"", "id: a\n", "etcd: [a:1, b:2]\n", "id: &a x\ngrpc: *a\n", "<<: {id: a}\n", "id: |\n  a\n", "---\n---\n"} {
		f.Add([]byte(seed))
	}
	known := make(map[string]bool)
	for _, o := range options() {
		known[o.name] = true
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		values, err := parseFile("weir.yaml", data)
		if err != nil && !strings.HasPrefix(err.Error(), "weir.yaml:") {
			t.Errorf("the error does not name the file: %v", err)
		}
		for name, value := range values {
			if !known[name] || !strings.HasPrefix(value.where, "weir.yaml:") {
				t.Errorf("option %q from %q", name, value.where)
			}
		}
	})
}
