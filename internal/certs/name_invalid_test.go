package certs

import (
	"strings"
	"testing"
	"time"
)

func TestInvalidNames(t *testing.T) {
	a := newAuthority(t, "shop")
	for _, tc := range []struct {
		name Name
		want string
	}{
		{Name{Kind: Node, ID: "a/b"}, `node "a/b"`},
		{Name{Kind: Node, ID: ""}, `node ""`},
		{Name{Kind: Node, ID: strings.Repeat("a", 129)}, "1 to 128"},
		{Name{Kind: Client, ID: "x", Role: "root"}, `role "root" is none of check, rules, admin`},
		{Name{Kind: Client, ID: "x:admin", Role: "check"}, `client "x:admin"`},
	} {
		if _, err := a.Issue(tc.name, nil, time.Now()); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: %v", tc.name, err)
		}
	}
	if _, err := CreateAuthority(t.TempDir(), "a b", time.Now()); err == nil || !strings.Contains(err.Error(), `cluster "a b"`) {
		t.Error(err)
	}
}
