package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/access"
)

func TestTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var tokens access.Tokens
	knows := func(secret string) bool {
		_, err := tokens.Caller(nil, []string{"Bearer " + secret})
		return err == nil
	}
	if _, err := openTokenFile(path, &tokens, quiet()); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a missing file: %v", err)
	}
	a, b := access.NewSecret(), access.NewSecret()
	write("a check " + access.Hash(a).String() + "\n")
	f, err := openTokenFile(path, &tokens, quiet())
	if err != nil || !knows(a) {
		t.Fatal(err)
	}
	write("b check " + access.Hash(b).String() + "\n")
	if f.look(); f.Err() != nil || knows(a) || !knows(b) {
		t.Errorf("replaced: %v", f.Err())
	}
	for _, broken := range []string{"broken", strings.Repeat("#", access.MaxTokensBytes+1)} {
		write(broken)
		if f.look(); f.Err() == nil || !knows(b) {
			t.Errorf("%.10s: %v", broken, f.Err())
		}
	}
	write("")
	if f.look(); f.Err() != nil || knows(b) {
		t.Errorf("emptied: %v", f.Err())
	}
}

func TestTokensNeedTLS(t *testing.T) {
	if err := (Options{Tokens: "f"}).Validate(); err == nil || !strings.Contains(err.Error(), "tokens: an access token would travel unencrypted") {
		t.Error(err)
	}
}
