package ui

import (
	"slices"
	"strings"
	"testing"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
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

// Nodes that come, go or change are events, and those of the first look are not.
func TestSeen(t *testing.T) {
	var s seen
	look := func(second int64, states ...State) { s.look(time.Unix(second, 0), states) }
	look(0, State{"a", "ready", "good", 1}, State{"b", "ready", "good", 1})
	look(1, State{"a", "ready", "good", 1}, State{"b", "unreachable", "bad", 1})
	look(2, State{"a", "ready", "good", 1})
	look(3, State{"a", "ready", "good", 1}, State{"b", "joining", "busy", 2})
	look(4, State{"a", "ready", "good", 2}, State{"b", "joining", "busy", 2})
	var got []string
	for _, e := range s.list() {
		got = append(got, e.What+" "+e.Target)
	}
	if want := []string{"Node unreachable b", "Node gone b", "Node joining b", "Node restarted a"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for i := range int64(2 * maxSeen) {
		look(5+i, State{"a", "ready", "good", uint64(3 + i)})
	}
	if n := len(s.list()); n != maxSeen {
		t.Errorf("%d events, want %d", n, maxSeen)
	}
}

func TestURLOfARule(t *testing.T) {
	v := viewOf(&weirv1.RateLimit{Domain: "a b", Id: "login/<x>?", Rule: &weirv1.Rule{}})
	if v.URL() != "/ui/rules/a%20b/login/%3Cx%3E%3F" || v.EditURL() != "/ui/edit-rule/a%20b/login/%3Cx%3E%3F" || v.ChangeURL() != "/ui/change-rule/a%20b/login/%3Cx%3E%3F" {
		t.Errorf("%s, %s, %s", v.URL(), v.EditURL(), v.ChangeURL())
	}
}
