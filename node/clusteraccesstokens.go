package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/weirlimit/weir/api"
	"github.com/weirlimit/weir/cluster/etcd"
	"github.com/weirlimit/weir/internal/access"
)

// tokenAttempts is how often a change of the cluster's tokens is tried while other nodes change them.
const tokenAttempts = 8

var errTokensBusy = errors.New("other nodes change the access tokens of this cluster: try again")

// tokenRegistry is where the access tokens of the cluster stand: *etcd.Registry.
type tokenRegistry interface {
	ReadAccessTokens(ctx context.Context) (value []byte, revision int64, err error)
	SwapAccessTokens(ctx context.Context, value []byte, revision int64) (int64, error)
}

// clusterTokens puts the access tokens of the cluster in force, and changes them. It implements api.AccessTokenStore. Tokens that
// cannot be used leave those before in force.
//
// A token that this node has seen revoked is never in force again: an etcd that has it once more was restored from a backup. The
// next change of the tokens by such a node removes it there too.
type clusterTokens struct {
	registry tokenRegistry
	tokens   *access.Tokens
	log      *slog.Logger

	mu       sync.Mutex
	text     []byte         // guarded by mu; as stored; read-only
	problem  error          // guarded by mu; of text
	last     []access.Token // guarded by mu; of the last text that could be read; read-only
	revoked  revokedTokens  // guarded by mu
	returned []access.Token // guarded by mu; the revoked ones in last; read-only
}

var _ api.AccessTokenStore = (*clusterTokens)(nil)

// openTokens puts the tokens in force that the cluster has, if this node has TLS.
func (n *node) openTokens(ctx context.Context) (err error) {
	if n.access == nil {
		return nil
	}
	c := &clusterTokens{registry: n.registry, tokens: n.access.Tokens, log: n.log}
	var text []byte
	if known := n.state.Found(); known != nil {
		c.recall(known)
	}
	if n.offline.Load() {
		text = n.state.Found().Tokens
	} else if text, _, err = n.registry.ReadAccessTokens(ctx); err != nil {
		return err
	}
	n.clusterTokens, n.access.Store = c, c
	n.useTokens(text)
	return nil
}

// useTokens puts the tokens in force that etcd has, and keeps them for a start without etcd.
func (n *node) useTokens(text []byte) {
	if n.clusterTokens != nil && n.clusterTokens.use(text) {
		revoked := n.clusterTokens.seenRevoked()
		n.state.Keep(func(k *etcd.Known) { k.Tokens, k.Revoked = text, revoked })
	}
}

// recall takes what an earlier run of this node has kept. A token that is missing in etcd since was revoked meanwhile.
func (c *clusterTokens) recall(known *etcd.Known) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revoked = recallRevoked(known.Revoked)
	if tokens, err := access.ParseTokens(string(known.Tokens)); err == nil {
		c.last = tokens
	}
}

// use puts the tokens of text in force, except those that were revoked. It reports whether that is another text than before.
func (c *clusterTokens) use(text []byte) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if text == nil { // etcd has lost them, or there were none: that revokes no token, and neither does what comes after it
		c.last = nil
	}
	if bytes.Equal(text, c.text) {
		return false
	}
	tokens, err := access.ParseTokens(string(text))
	c.text, c.problem = text, err
	if err != nil {
		c.log.Error("the access tokens in etcd cannot be used: those before stay in force", "error", err)
		return true
	}
	if text != nil {
		c.revoked.note(c.last, tokens)
		c.last = tokens
	}
	inForce, returned := c.revoked.divide(tokens)
	c.tokens.Set(access.FromCluster, inForce)
	c.returned = returned
	if len(returned) > 0 {
		c.log.Error("etcd was restored: tokens that were revoked are there again, and stay revoked", "tokens", tokenNames(returned))
	}
	c.log.Info("tokens of the cluster in force", "tokens", len(inForce))
	return true
}

// seenRevoked returns what this node keeps of revoked tokens.
func (c *clusterTokens) seenRevoked() []etcd.RevokedToken {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.revoked.kept()
}

// stored returns the tokens as they stand in etcd, without those that were revoked; nil if there were none.
func (c *clusterTokens) stored() []byte {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.returned) == 0 {
		return c.text
	}
	inForce, _ := c.revoked.divide(c.last)
	return []byte(access.FormatTokens(inForce))
}

// Returned says which revoked tokens etcd has again; it is empty if there is none.
func (c *clusterTokens) Returned() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return tokenNames(c.returned)
}

// Err returns why the tokens in etcd cannot be used, or nil.
func (c *clusterTokens) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.problem
}

// List implements api.AccessTokenStore.
func (c *clusterTokens) List() []access.Token { return c.tokens.List(access.FromCluster) }

// Add implements api.AccessTokenStore. It removes revoked tokens that a restored etcd has again.
func (c *clusterTokens) Add(ctx context.Context, t access.Token) (removed string, err error) {
	return c.change(ctx, func(tokens []access.Token) (next, revoked []access.Token, err error) {
		if c.isRevoked(t) {
			return nil, nil, access.ErrTokenRevoked
		}
		tokens, revoked = c.divide(tokens)
		next, err = access.AddToken(tokens, t)
		return next, revoked, err
	})
}

// Remove implements api.AccessTokenStore. It removes revoked tokens that a restored etcd has again, and finds those by their names.
func (c *clusterTokens) Remove(ctx context.Context, name string) (removed string, err error) {
	return c.change(ctx, func(tokens []access.Token) (next, revoked []access.Token, err error) {
		if tokens, err = access.RemoveToken(tokens, name); err != nil {
			return nil, nil, err
		}
		next, revoked = c.divide(tokens)
		return next, revoked, nil
	})
}

// noteRead notes what was revoked as of a text that was read from etcd, which may not have come to use yet.
func (c *clusterTokens) noteRead(text []byte, tokens []access.Token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if text != nil {
		c.revoked.note(c.last, tokens)
	}
}

func (c *clusterTokens) isRevoked(t access.Token) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.revoked.has(t.Digest)
}

func (c *clusterTokens) divide(tokens []access.Token) (inForce, revoked []access.Token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.revoked.divide(tokens)
}

// change stores the tokens as edit makes them of those that are stored, and returns the names of the revoked ones that it leaves out.
func (c *clusterTokens) change(ctx context.Context, edit func([]access.Token) (next, revoked []access.Token, err error)) (removed string, err error) {
	for range tokenAttempts {
		text, revision, err := c.registry.ReadAccessTokens(ctx)
		if err != nil {
			return "", err
		}
		tokens, err := access.ParseTokens(string(text))
		if err != nil {
			return "", fmt.Errorf("the access tokens in etcd cannot be used: %w", err)
		}
		c.noteRead(text, tokens)
		next, revoked, err := edit(tokens)
		if err != nil {
			return "", err
		}
		stored, err := c.registry.SwapAccessTokens(ctx, []byte(access.FormatTokens(next)), revision)
		if err != nil {
			return "", err
		}
		if stored == 0 {
			continue
		}
		if len(revoked) > 0 {
			c.log.Warn("tokens that were revoked have been removed from etcd, which was restored", "tokens", tokenNames(revoked))
		}
		return tokenNames(revoked), nil
	}
	return "", errTokensBusy
}
