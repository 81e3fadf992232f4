package access

import (
	"strings"
	"testing"
)

func TestParseGrants(t *testing.T) {
	for text, want := range map[string]string{ // what is wrong with it, or nothing
		"check":                                "",
		"check:shop,rules:shop/a,admin":        "",
		"":                                     `role "" is none of`,
		"peer":                                 `role "peer" is none of`,
		"public":                               `role "public" is none of`,
		"check,":                               `role "" is none of`,
		"admin:shop":                           "admin has no domain",
		"metrics:shop":                         "metrics has no domain",
		"check:":                               `domain "" is not`,
		"check:a b":                            `domain "a b" is not`,
		strings.Repeat("check,", 64) + "rules": "65 roles are more than 64",
		strings.Repeat("x", 2049):              "2049 bytes",
	} {
		grants, err := ParseGrants(text)
		if want == "" && (err != nil || FormatGrants(grants) != text) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.80q: %v %v, want %q", text, grants, err, want)
		}
	}
}

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

func TestTokensAreKeptAndRevoked(t *testing.T) {
	secret, other := NewSecret(), NewSecret()
	if secret == other || len(secret) > maxSecret {
		t.Fatal(secret, other)
	}
	list := func(lines ...string) []Token {
		tokens, err := ParseTokens("# a comment\n\n" + strings.Join(lines, "\n"))
		if err != nil {
			t.Fatal(err)
		}
		return tokens
	}
	var tokens Tokens
	call := func(secret string) *Principal {
		p, _ := tokens.Caller(nil, []string{"bearer " + secret})
		return p
	}
	if call(secret) != nil {
		t.Fatal("a token is known where there are none")
	}
	a, b := "a check "+Hash(secret).String(), "b rules:shop,metrics "+Hash(other).String()
	tokens.Set(FromFile, list(a, b))
	first, second := call(secret), call(other)
	if first == nil || first.Name() != "a" || second == nil || second.Has(Metrics) != nil {
		t.Fatal(first, second)
	}
	tokens.Set(FromFile, list(b, a))
	if call(secret) != first {
		t.Error("a token that stays has another principal")
	}
	tokens.Set(FromFile, list("a rules "+Hash(secret).String()))
	for name, p := range map[string]*Principal{"with other roles": first, "gone": second} {
		select {
		case <-p.Revoked():
		default:
			t.Errorf("%s: not revoked", name)
		}
	}
	if call(other) != nil || call(secret).Has(Rules) != nil || call(secret[:20]) != nil || call(secret+"x") != nil {
		t.Error("wrong tokens are known")
	}
	tokens.Set(FromCluster, list("c check "+Hash(other).String()))
	if call(other).Name() != "c" || call(secret).Name() != "a" {
		t.Error("tokens of the file and of the cluster do not add up")
	}
}

func TestCaller(t *testing.T) {
	var tokens Tokens
	secret := NewSecret()
	tokens.Set(FromFile, []Token{{Name: "t", Grants: []Grant{{Role: Check}}, Digest: Hash(secret)}})
	certificate := New("c", ByCertificate, []Grant{{Role: Admin}})
	for name, tc := range map[string]struct {
		certificate   *Principal
		authorization []string
		want          string // the caller's name, or what is in the error
	}{
		"nothing":                     {nil, nil, "neither a certificate"},
		"certificate":                 {certificate, nil, "c"},
		"token":                       {nil, []string{"Bearer " + secret}, "t"},
		"the token counts":            {certificate, []string{"Bearer " + secret}, "t"},
		"bad token, good certificate": {certificate, []string{"Bearer nothing"}, "unknown or revoked"},
		"empty token":                 {certificate, []string{"Bearer "}, "unknown or revoked"},
		"another scheme":              {certificate, []string{"Basic " + secret}, "only the scheme Bearer"},
		"token without scheme":        {certificate, []string{secret}, "only the scheme Bearer"},
		"two":                         {nil, []string{"Bearer " + secret, "Bearer " + secret}, "2 times"},
	} {
		p, err := tokens.Caller(tc.certificate, tc.authorization)
		if err == nil && p.Name() != tc.want || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v %v", name, p, err)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error has the token", name)
		}
	}
}

func TestBadTokenFiles(t *testing.T) {
	good := "a check " + Hash("x").String()
	for text, want := range map[string]string{
		"a check":                        "line 1: it has 2 fields",
		"\n#\na check 12":                "line 3: token \"a\": the digest is not 64",
		"a b " + Hash("x").String():      `line 1: token "a": role "b"`,
		"a! check " + Hash("x").String(): `line 1: name "a!"`,
		good + "\n" + good:               `line 2: token "a", or its digest, stands there twice`,
		"a check weir_secretsecret":      "is not 64",
	} {
		if _, err := ParseTokens(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "weir_secret") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
