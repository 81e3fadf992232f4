package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/internal/access"
)

// CreateAccessToken keeps the request.
func (f *fakeNode) CreateAccessToken(_ context.Context, request *weirv1.CreateAccessTokenRequest) (*weirv1.CreateAccessTokenResponse, error) {
	f.tokens = append(f.tokens, request)
	return &weirv1.CreateAccessTokenResponse{}, f.failure
}

// RevokeAccessToken forgets the request of that name.
func (f *fakeNode) RevokeAccessToken(_ context.Context, request *weirv1.RevokeAccessTokenRequest) (*weirv1.RevokeAccessTokenResponse, error) {
	for i, t := range f.tokens {
		if t.GetName() == request.GetName() {
			f.tokens = append(f.tokens[:i], f.tokens[i+1:]...)
			return &weirv1.RevokeAccessTokenResponse{}, f.failure
		}
	}
	return nil, status.Errorf(codes.NotFound, "name: %q: there is no token of this name", request.GetName())
}

// ListAccessTokens returns what CreateAccessToken has kept.
func (f *fakeNode) ListAccessTokens(context.Context, *weirv1.ListAccessTokensRequest) (*weirv1.ListAccessTokensResponse, error) {
	response := &weirv1.ListAccessTokensResponse{}
	for _, t := range f.tokens {
		response.AccessTokens = append(response.AccessTokens, &weirv1.AccessToken{Name: t.GetName(), Roles: t.GetRoles()})
	}
	return response, f.failure
}

// With --node, tokens are the cluster's: the node gets the digest of the one that is printed, and no file is touched.
// Without it they are those of a file, also if WEIR_NODE is set. The output is the same.
func TestTokens(t *testing.T) {
	t.Chdir(t.TempDir())
	fake := &fakeNode{}
	address := listen(t, fake)
	env := []string{"WEIR_NODE=" + address}
	for _, place := range [][]string{{"--node", address}, {"--file", "other"}, nil} {
		tokens := func(args ...string) outcome {
			return weir(t, env, append(append([]string{"tokens"}, args...), place...)...)
		}
		made := tokens("create", "checkout", "--role", "check:shop,metrics")
		secret := strings.TrimSuffix(made.stdout, "\n")
		if made.code != 0 || !strings.HasPrefix(secret, access.Prefix) {
			t.Fatalf("%v: %+v", place, made)
		}
		digest := access.Hash(secret)
		if path := "tokens"; place == nil || place[0] == "--file" {
			if place != nil {
				path = place[1]
			}
			if text, err := os.ReadFile(path); err != nil || string(text) != access.FormatTokens(nil)+"checkout check:shop,metrics "+digest.String()+"\n" || len(fake.tokens) > 0 {
				t.Errorf("%v: %v %s", place, err, text)
			}
		} else if len(fake.tokens) != 1 || access.Digest(fake.tokens[0].GetDigest()) != digest || fake.tokens[0].GetName() != "checkout" {
			t.Errorf("%v: %v", place, fake.tokens)
		} else if files, err := filepath.Glob("*"); err != nil || len(files) > 0 {
			t.Errorf("%v: %v %v", place, files, err)
		}
		for args, want := range map[string]outcome{
			"list":        {0, "checkout check:shop,metrics\n", ""},
			"list --json": {0, `{"access_tokens":[{"name":"checkout","roles":"check:shop,metrics"}]}` + "\n", ""},
		} {
			if got := tokens(strings.Fields(args)...); got != want {
				t.Errorf("%v: %s: %+v", place, args, got)
			}
		}
		if got := tokens("revoke", "nothing"); got.code != 2 || !strings.Contains(got.stderr, "no token") {
			t.Errorf("%v: %+v", place, got)
		}
		if got := tokens("revoke", "checkout"); got != (outcome{}) {
			t.Errorf("%v: %+v", place, got)
		}
		if got := tokens("list"); got != (outcome{}) {
			t.Errorf("%v: %+v", place, got)
		}
	}
	fake.failure = status.Error(codes.AlreadyExists, "taken")
	if got := weir(t, nil, "tokens", "create", "a", "--role", "check", "--node", address); got.code != 2 || got.stdout != "" || !strings.Contains(got.stderr, "taken") {
		t.Errorf("a token that was refused: %+v", got)
	}
	for _, command := range []string{"create a --role check", "list", "revoke a"} {
		got := weir(t, nil, append(append([]string{"tokens"}, strings.Fields(command)...), "--node", address, "--file", "f")...)
		if got.code != 2 || !strings.Contains(got.stderr, "--file: tokens stand in a file or, with --node, in a cluster") {
			t.Errorf("%s: %+v", command, got)
		}
	}
}
