package access

import (
	"testing"
)

func TestPrincipal(t *testing.T) {
	grants, err := ParseGrants("check:bank,rules:shop,metrics")
	if err != nil {
		t.Fatal(err)
	}
	p := New("x", ByCertificate, grants)
	for _, tc := range []struct {
		role   Role
		domain string
		ok     bool
	}{
		{Check, "shop", true}, {Check, "bank", true}, {Check, "other", false}, {Check, "", false},
		{Rules, "shop", true}, {Rules, "bank", false}, {Admin, "shop", false}, {Metrics, "any", true}, {Peer, "shop", false},
	} {
		if err := p.In(tc.role, tc.domain); (err == nil) != tc.ok {
			t.Errorf("%v in %q: %v", tc.role, tc.domain, err)
		}
	}
	if p.Has(Check) != nil || p.Has(Rules) != nil || p.Has(Admin) == nil || p.All(Check) == nil || p.All(Metrics) != nil {
		t.Error("roles in some domain are not those in all")
	}
}
