package access

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestChangeTokens(t *testing.T) {
	one := Token{Name: "a", Grants: []Grant{{Role: Check, Domain: "shop"}, {Role: Metrics}}, Digest: Hash("1")}
	list, err := AddToken(nil, one)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	for want, token := range map[string]Token{
		ErrTokenExists.Error(): {Name: "a", Digest: Hash("2")},
		"name \"a b\"":         {Name: "a b", Digest: Hash("2")},
	} {
		if _, err := AddToken(list, token); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", token, err)
		}
	}
	if _, err := AddToken(list, Token{Name: "b", Digest: one.Digest}); !errors.Is(err, ErrTokenExists) {
		t.Errorf("the same digest: %v", err)
	}
	two, err := AddToken(list, Token{Name: "b", Grants: []Grant{{Role: Admin}}, Digest: Hash("2")})
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	read, err := ParseTokens(FormatTokens(two))
	if err != nil || !slices.EqualFunc(read, two, func(x, y Token) bool { return x.String() == y.String() }) {
		t.Errorf("%v, %v, want %v", read, err, two)
	}
	if rest, err := RemoveToken(two, "a"); err != nil || len(rest) != 1 || rest[0].Name != "b" || len(two) != 2 || two[0].Name != "a" {
		t.Errorf("%v of %v, %v", rest, two, err)
	}
	if _, err := RemoveToken(two, "c"); !errors.Is(err, ErrNoToken) {
		t.Error(err)
	}
	if read, err := ParseTokens(FormatTokens(nil)); FormatTokens(nil) == "" || err != nil || len(read) != 0 {
		t.Error(read, err)
	}
}

// As many tokens as are allowed can be stored and read again, and one more cannot be added, of however long roles.
func TestBoundOfTokens(t *testing.T) {
	long := strings.Repeat("check:"+strings.Repeat("d", 57)+",", 31) + "check"
	for grants, most := range map[string]int{"check": MaxTokens, long: 509} {
		parsed, err := ParseGrants(grants)
		if err != nil {
			t.Fatal(err)
		}
		token := func(i int) Token {
			name := fmt.Sprintf("client-%04d", i)
			return Token{Name: name, Grants: parsed, Digest: Hash(name)}
		}
		var list []Token
		for i := range most - 10 {
			list = append(list, token(i))
		}
		for err == nil && len(list) <= MaxTokens {
			var next []Token
			if next, err = AddToken(list, token(len(list))); err == nil {
				list = next
			}
		}
		text := FormatTokens(list)
		read, parseErr := ParseTokens(text)
		if !errors.Is(err, ErrTooManyTokens) || parseErr != nil || len(read) != len(list) || len(text) > MaxTokensBytes || len(list) > MaxTokens || len(list) < most-10 {
			t.Errorf("%d tokens, %d bytes: %v, %v", len(list), len(text), err, parseErr)
		}
		if grants == "check" && len(list) != MaxTokens {
			t.Errorf("%d tokens", len(list))
		}
	}
}

// A text of tokens says its version, and one of another version is refused. One that people write needs none.
func TestTokensOfAnotherVersion(t *testing.T) {
	token := Token{Name: "a", Grants: []Grant{{Role: Check}}, Digest: Hash("x")}
	text := FormatTokens([]Token{token})
	if !strings.HasPrefix(text, "# weir tokens 1\n") {
		t.Fatal(text)
	}
	for head, want := range map[string]string{
		"# weir tokens 1\n":  "",
		"# our tokens\n":     "",
		"":                   "",
		"# weir tokens 2\n":  `line 1: the tokens have the format "2", and this version of weir reads format 1: another version of weir has written them, install that one`,
		"# weir tokens 0\n":  `line 1: the tokens have the format "0", and this version of weir reads format 1: another version of weir has written them, install that one`,
		"# weir tokens 10\n": `line 1: the tokens have the format "10", `,
	} {
		read, err := ParseTokens(strings.Replace(text, "# weir tokens 1\n", head, 1))
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) || err == nil && len(read) != 1 {
			t.Errorf("%q: %v, %v", head, read, err)
		}
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
