package main

import (
	"fmt"

	"github.com/weirlimit/weir/rules"
)

// writeKeys returns what writes the keys of mappings, those of the second one on with the name of
// their mapping before them.
func writeKeys(names ...string) func() ([]byte, error) {
	return func() (b []byte, err error) {
		b = append(b, "| key | meaning | type | default | bounds | example |\n|---|---|---|---|---|---|\n"...)
		for i, name := range names {
			prefix := ""
			if i > 0 {
				prefix = name + "."
			}
			for _, m := range rules.Reference() {
				if m.Name == name {
					b = appendKeys(b, prefix, m.Fields)
				}
			}
		}
		return b, nil
	}
}

func appendKeys(b []byte, prefix string, fields []rules.Field) []byte {
	for _, f := range fields {
		b = fmt.Appendf(b, "| `%s%s` | %s | %s | %s | %s | `%s` |\n", prefix, f.Key, f.Meaning, f.Type, f.Default, f.Bounds, f.Example)
	}
	return b
}
