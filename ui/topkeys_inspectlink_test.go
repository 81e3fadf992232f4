package ui

import (
	"net/url"
	"testing"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// The inspector is asked for a request that has the key's values and those that the rule's conditions name, and for none if a value
// cannot be written.
func TestInspectorOfAKey(t *testing.T) {
	entries := func(words ...string) (all []*weirv1.KeyEntry) {
		for i := 0; i < len(words); i += 2 {
			all = append(all, &weirv1.KeyEntry{Key: words[i], Value: words[i+1]})
		}
		return all
	}
	posts := &weirv1.Rule{When: map[string]*weirv1.Condition{
		"endpoint": {AnyOf: []string{"/posts*"}}, "plan": {AnyOf: []string{"re:x|y", "*"}}, "bot": {Absent: true}, "ip": {AnyOf: []string{"192.0.2.0/24"}},
	}}
	for _, row := range []struct {
		entries []*weirv1.KeyEntry
		rule    *weirv1.Rule
		want    string
	}{
		{entries("user", "alice"), nil, "user=alice"},
		{entries("user", "alice"), posts, "user=alice endpoint=/posts ip=192.0.2.0"},
		{entries("ip", "192.0.2.7"), posts, "ip=192.0.2.7 endpoint=/posts"},
		{entries("user", "a b", "card", ""), nil, `user="a b" card=""`},
		{entries("user", `a"b`), nil, `user=a"b`},
		{entries("user", `a "b`), nil, ""},
		{entries("user name", "a"), nil, ""},
		{[]*weirv1.KeyEntry{{Key: "user", Value: "long", Cut: true}}, nil, ""},
		{nil, nil, ""},
		{entries("endpoint", "/a"), nil, ""},
	} {
		link := inspectURL("shop", row.entries, row.rule)
		if row.want == "" {
			if link != "" {
				t.Errorf("%v: %s, want none", row.entries, link)
			}
			continue
		}
		u, err := url.Parse(link)
		if err != nil || u.Path != "/ui/inspect" || u.Query().Get("q") != row.want || u.Query().Get("domain") != "shop" {
			t.Errorf("%v: %s, %v; want %s", row.entries, link, err, row.want)
			continue
		}
		names, values, err := readAttributes(row.want)
		if err != nil {
			t.Errorf("%s is not read: %v", row.want, err)
		}
		for i, e := range row.entries {
			if names[i] != e.GetKey() || values[i] != e.GetValue() {
				t.Errorf("%s is read as %q, %q", row.want, names, values)
			}
		}
	}
	if got := keyText(entries("user", "a\x1bb")); got != `user="a\x1bb"` {
		t.Errorf("a control character is shown as %q", got)
	}
}
