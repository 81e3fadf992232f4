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
