package etcd

import (
	"context"
	"errors"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// login has calls made as a user of etcd. clientv3 can do that itself, but only once etcd has answered, and it asks
// for another token before each renewal of a lease, which costs etcd a tenth of a second of processor time.
type login struct {
	user, password string

	// token holds the token that calls are made with, empty before the first and of an etcd without users.
	token chan string
}

func newLogin(user, password string) *login {
	l := &login{user: user, password: password, token: make(chan string, 1)}
	l.token <- ""
	return l
}

// options returns what a connection needs to make calls as the user.
func (l *login) options() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(l.call), grpc.WithChainStreamInterceptor(l.stream)}
}

// call makes a call with the token, and once more with another if etcd does not know it, as after a restart of etcd.
func (l *login) call(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if strings.HasSuffix(method, "/Authenticate") {
		return invoke(ctx, method, req, reply, conn, opts...)
	}
	token, err := l.renewed(ctx, conn, "")
	if err != nil {
		return err
	}
	err = invoke(withToken(ctx, token), method, req, reply, conn, opts...)
	if unknownToken(err) {
		if token, err = l.renewed(ctx, conn, token); err == nil {
			err = invoke(withToken(ctx, token), method, req, reply, conn, opts...)
		}
	}
	return err
}

// stream begins a stream. A watch begins with a new token: etcd ends it without naming the token that it does not know.
func (l *login) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, begin grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	token, err := l.renewed(ctx, conn, "")
	if err == nil && strings.HasSuffix(method, "/Watch") {
		token, err = l.renewed(ctx, conn, token)
	}
	if err != nil {
		return nil, err
	}
	return begin(withToken(ctx, token), desc, conn, method, opts...)
}

// renewed returns the token or, if that is still the one to replace, asks etcd for another.
func (l *login) renewed(ctx context.Context, conn *grpc.ClientConn, replace string) (token string, err error) {
	select {
	case token = <-l.token:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { l.token <- token }()
	if token != replace {
		return token, nil
	}
	resp, err := etcdserverpb.NewAuthClient(conn).Authenticate(ctx, &etcdserverpb.AuthenticateRequest{Name: l.user, Password: l.password})
	switch {
	case err == nil:
		token = resp.GetToken()
	case errors.Is(rpctypes.Error(err), rpctypes.ErrAuthNotEnabled):
		token, err = "", nil
	}
	return token, err
}

func withToken(ctx context.Context, token string) context.Context {
	if token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, token)
}

// unknownToken reports whether a call has failed as etcd needs another token.
func unknownToken(err error) bool {
	err = rpctypes.Error(err)
	return errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrUserEmpty) || errors.Is(err, rpctypes.ErrAuthOldRevision)
}
