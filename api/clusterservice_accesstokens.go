package api

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/api/internal/wire"
	"github.com/weirlimit/weir/internal/access"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// AccessTokenStore has the tokens of the cluster. It is safe for concurrent use.
type AccessTokenStore interface {
	// List returns those in force on this node, in the order in which they were added.
	List() []access.Token
	// Add stores one more. It returns the names of the revoked tokens that it has removed from a restored etcd, empty for none, as a short
	// text. The error is one of package access, or says why none can be stored now.
	Add(ctx context.Context, t access.Token) (removed string, err error)
	// Remove removes the token of a name, in the same way.
	Remove(ctx context.Context, name string) (removed string, err error)
}

// errNoStore answers where there are no tokens of the cluster.
var errNoStore = status.Error(codes.FailedPrecondition, "this node has no TLS (--tls-cert): a token would travel unencrypted")

// CreateAccessToken implements weirv1.ClusterServer.
func (s clusterServer) CreateAccessToken(ctx context.Context, req *weirv1.CreateAccessTokenRequest) (*weirv1.CreateAccessTokenResponse, error) {
	removed, err := s.createToken(ctx, req)
	auditedCall(ctx, s.audit, "Cluster.CreateAccessToken", tokenTarget(clip(req.GetName())+" "+clip(req.GetRoles()), removed), err)
	return &weirv1.CreateAccessTokenResponse{}, err
}

func (s clusterServer) createToken(ctx context.Context, req *weirv1.CreateAccessTokenRequest) (removed string, err error) {
	if s.tokens == nil {
		return "", errNoStore
	}
	t := access.Token{Name: req.GetName()}
	if err := t.Validate(); err != nil {
		return "", wire.Invalid("name", "%v", err)
	}
	if t.Grants, err = access.ParseGrants(req.GetRoles()); err != nil {
		return "", wire.Invalid("roles", "%v", err)
	}
	if len(req.GetDigest()) != len(t.Digest) { // without its value, which may be a token
		return "", wire.Invalid("digest", "%d bytes are not %d, the SHA-256 of a token", len(req.GetDigest()), len(t.Digest))
	}
	t.Digest = access.Digest(req.GetDigest())
	removed, err = s.tokens.Add(ctx, t)
	return removed, tokenError(t.Name, err)
}

// RevokeAccessToken implements weirv1.ClusterServer.
func (s clusterServer) RevokeAccessToken(ctx context.Context, req *weirv1.RevokeAccessTokenRequest) (*weirv1.RevokeAccessTokenResponse, error) {
	removed, err := "", errNoStore
	if s.tokens != nil {
		removed, err = s.tokens.Remove(ctx, req.GetName())
		err = tokenError(req.GetName(), err)
	}
	auditedCall(ctx, s.audit, "Cluster.RevokeAccessToken", tokenTarget(clip(req.GetName()), removed), err)
	return &weirv1.RevokeAccessTokenResponse{}, err
}

// ListAccessTokens implements weirv1.ClusterServer.
func (s clusterServer) ListAccessTokens(context.Context, *weirv1.ListAccessTokensRequest) (*weirv1.ListAccessTokensResponse, error) {
	if s.tokens == nil {
		return nil, errNoStore
	}
	resp := &weirv1.ListAccessTokensResponse{}
	for _, t := range s.tokens.List() {
		resp.AccessTokens = append(resp.AccessTokens, &weirv1.AccessToken{Name: t.Name, Roles: access.FormatGrants(t.Grants)})
	}
	return resp, nil
}

// tokenTarget returns the target of a change of tokens for the audit log.
func tokenTarget(target, removed string) string {
	if removed == "" {
		return target
	}
	return target + "; removed from a restored etcd: " + removed
}

// tokenError returns the status of what an AccessTokenStore says of a token.
func tokenError(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, access.ErrTokenExists):
		return status.Errorf(codes.AlreadyExists, "name: %q: %v", clip(name), err)
	case errors.Is(err, access.ErrNoToken):
		return status.Errorf(codes.NotFound, "name: %q: %v", clip(name), err)
	case errors.Is(err, access.ErrTokenRevoked):
		return status.Errorf(codes.FailedPrecondition, "name: %q: %v", clip(name), err)
	case errors.Is(err, access.ErrTooManyTokens):
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return status.Error(codes.Unavailable, err.Error())
}
