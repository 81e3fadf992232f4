package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/access"
	"github.com/weirlimit/weir/internal/audit"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// tokenList is an AccessTokenStore in memory, which fails with err.
type tokenList struct {
	tokens  []access.Token
	removed string // is said to have been removed as well
	err     error
}

func (l *tokenList) List() []access.Token { return l.tokens }

func (l *tokenList) Add(_ context.Context, t access.Token) (string, error) {
	next, err := access.AddToken(l.tokens, t)
	if err = errors.Join(err, l.err); err == nil {
		l.tokens = next
	}
	return l.removed, err
}

func (l *tokenList) Remove(_ context.Context, name string) (string, error) {
	next, err := access.RemoveToken(l.tokens, name)
	if err = errors.Join(err, l.err); err == nil {
		l.tokens = next
	}
	return l.removed, err
}

// Tokens are made, listed and revoked over gRPC. Each change is recorded, and neither answers nor records have a digest.
func TestChangesOfTokens(t *testing.T) {
	var to bytes.Buffer
	f := newFixture(t, accessRules)
	f.audit = audit.New("here", &to)
	store := &tokenList{}
	f.access = &Access{Store: store}
	nodes := weirv1.NewClusterClient(f.dial(t))
	digest := access.Hash("secret")
	create := func(name, roles string, digest []byte) error {
		_, err := nodes.CreateAccessToken(t.Context(), &weirv1.CreateAccessTokenRequest{Name: name, Roles: roles, Digest: digest})
		return err
	}
	revoke := func(name string) error {
		_, err := nodes.RevokeAccessToken(t.Context(), &weirv1.RevokeAccessTokenRequest{Name: name})
		return err
	}
	for i, tc := range []struct {
		err  error
		code codes.Code
		want string
	}{
		{create("checkout", "check:shop,metrics", digest[:]), codes.OK, ""},
		{create("checkout", "admin", make([]byte, 32)), codes.AlreadyExists, `name: "checkout"`},
		{create("other", "admin", digest[:]), codes.AlreadyExists, "name or digest"},
		{create("a b", "check", make([]byte, 32)), codes.InvalidArgument, `name: name "a b"`},
		{create("other", "peer", make([]byte, 32)), codes.InvalidArgument, `roles: role "peer"`},
		{create("other", "check", []byte("weir_secret")), codes.InvalidArgument, "digest: 11 bytes are not 32"},
		{revoke("nothing"), codes.NotFound, `name: "nothing"`},
	} {
		if status.Code(tc.err) != tc.code || tc.err != nil && !strings.Contains(tc.err.Error(), tc.want) {
			t.Errorf("%d: %v, want %v %s", i, tc.err, tc.code, tc.want)
		}
	}
	list, err := nodes.ListAccessTokens(t.Context(), nil)
	if want := `access_tokens:{name:"checkout" roles:"check:shop,metrics"}`; err != nil || strings.ReplaceAll(fmt.Sprint(list), "  ", " ") != want {
		t.Errorf("%v, %v, want %s", list, err, want)
	}
	if err := revoke("checkout"); err != nil || len(store.tokens) != 0 {
		t.Error(err)
	}
	store.err = errors.New("etcd is away")
	if err := create("late", "check", make([]byte, 32)); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	entries := f.audit.Entries()
	if len(entries) != 9 || entries[0].Target != "checkout check:shop,metrics" || entries[0].Outcome != "OK" || entries[7].Action != "Cluster.RevokeAccessToken" {
		t.Errorf("recorded: %+v", entries)
	}
	store.err, store.removed = nil, "early, late"
	if err := errors.Join(create("ci", "check", make([]byte, 32)), revoke("ci")); err != nil {
		t.Error(err)
	}
	entries = f.audit.Entries()
	const removed = "; removed from a restored etcd: early, late"
	if created, revoked := entries[len(entries)-2].Target, entries[len(entries)-1].Target; created != "ci check"+removed || revoked != "ci"+removed {
		t.Errorf("recorded: %q, %q", created, revoked)
	}
	if text := to.String(); strings.Contains(text, digest.String()) || strings.Contains(text, "weir_secret") {
		t.Errorf("a record has a secret: %s", text)
	}
}

// A node without TLS has no tokens.
func TestTokensWithoutTLS(t *testing.T) {
	f := newFixture(t, accessRules)
	nodes := weirv1.NewClusterClient(f.dial(t))
	_, create := nodes.CreateAccessToken(t.Context(), &weirv1.CreateAccessTokenRequest{Name: "a", Roles: "check", Digest: make([]byte, 32)})
	_, list := nodes.ListAccessTokens(t.Context(), nil)
	_, revoke := nodes.RevokeAccessToken(t.Context(), &weirv1.RevokeAccessTokenRequest{Name: "a"})
	for _, err := range []error{create, list, revoke} {
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "no TLS") {
			t.Error(err)
		}
	}
}
