package ui

import (
	"strings"
	"testing"
)

func TestReadAttributes(t *testing.T) {
	for text, want := range map[string]string{
		"user=alice":                           "user=alice",
		"  user=alice   endpoint=/posts ":      "user=alice endpoint=/posts",
		`user="a b" path=x`:                    "user=a b path=x",
		`user= path=x`:                         "user= path=x",
		"alice":                                `error "alice" is not NAME=VALUE`,
		`user="a`:                              `error the quotes of "user" do not end`,
		"=x":                                   "error ",
		strings.Repeat("a=b ", 33):             "error more than 32 attributes",
		"a=" + strings.Repeat("b", maxInspect): "error more than 4096 bytes",
	} {
		names, values, err := readAttributes(text)
		var got []string
		for i := range names {
			got = append(got, names[i]+"="+values[i])
		}
		if message, refused := strings.CutPrefix(want, "error "); refused {
			if err == nil || !strings.Contains(err.Error(), message) {
				t.Errorf("%.60q: %v, %v; want %q", text, got, err, message)
			}
		} else if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%.60q: %q, %v; want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{"user=a user=b": "given twice", "endpoint=/a": "missing identifier"} {
		if _, err := request(inspectBody{Query: text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
