package client

import (
	"context"
	"errors"
	"strings"
)

// WithAccessToken shows an access token to nodes with every call, which needs WithTLS: it is never sent unencrypted.
func WithAccessToken(token string) Option {
	return func(o *options) error {
		if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return errors.New("access token is empty, or has more than printable ASCII without spaces")
		}
		o.token = token
		return nil
	}
}

// bearer are the credentials of calls with an access token.
type bearer struct{ fields map[string]string }

func newBearer(token string) bearer {
	return bearer{map[string]string{"authorization": "Bearer " + token}}
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return b.fields, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (bearer) RequireTransportSecurity() bool { return true }
