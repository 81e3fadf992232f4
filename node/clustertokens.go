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

var errTokensBusy = errors.New("other nodes change the tokens of this cluster: try again")

// tokenRegistry is where the tokens of the cluster stand: *etcd.Registry.
type tokenRegistry interface {
	ReadTokens(ctx context.Context) (value []byte, revision int64, err error)
	SwapTokens(ctx context.Context, value []byte, revision int64) (int64, error)
}

// clusterTokens puts the tokens of the cluster in force, and changes them. It implements api.TokenStore. Tokens that
// cannot be used leave those before in force.
type clusterTokens struct {
	registry tokenRegistry
	tokens   *access.Tokens
	log      *slog.Logger

	mu      sync.Mutex
	text    []byte // guarded by mu; as stored; read-only
	problem error  // guarded by mu; of text
}

var _ api.TokenStore = (*clusterTokens)(nil)

// openTokens puts the tokens in force that the cluster has, if this node has TLS.
func (n *node) openTokens(ctx context.Context) (err error) {
	if n.access == nil {
		return nil
	}
	c := &clusterTokens{registry: n.registry, tokens: n.access.Tokens, log: n.log}
	var text []byte
	if n.offline.Load() {
		text = n.state.Found().Tokens
	} else if text, _, err = n.registry.ReadTokens(ctx); err != nil {
		return err
	}
	n.clusterTokens, n.access.Store = c, c
	n.useTokens(text)
	return nil
}

// useTokens puts the tokens in force that etcd has, and keeps them for a start without etcd.
func (n *node) useTokens(text []byte) {
	if n.clusterTokens != nil && n.clusterTokens.use(text) {
		n.state.Keep(func(k *etcd.Known) { k.Tokens = text })
	}
}

// use puts the tokens of text in force. It reports whether that is another text than before.
func (c *clusterTokens) use(text []byte) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if bytes.Equal(text, c.text) {
		return false
	}
	tokens, err := access.ParseTokens(string(text))
	c.text, c.problem = text, err
	if err != nil {
		c.log.Error("the tokens in etcd cannot be used: those before stay in force", "error", err)
		return true
	}
	c.tokens.Set(access.FromCluster, tokens)
	c.log.Info("tokens of the cluster in force", "tokens", len(tokens))
	return true
}

// stored returns the tokens as they stand in etcd; nil if there were none.
func (c *clusterTokens) stored() []byte {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text
}

// Err returns why the tokens in etcd cannot be used, or nil.
func (c *clusterTokens) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.problem
}

// List implements api.TokenStore.
func (c *clusterTokens) List() []access.Token { return c.tokens.List(access.FromCluster) }

// Add implements api.TokenStore.
func (c *clusterTokens) Add(ctx context.Context, t access.Token) error {
	return c.change(ctx, func(tokens []access.Token) ([]access.Token, error) { return access.AddToken(tokens, t) })
}

// Remove implements api.TokenStore.
func (c *clusterTokens) Remove(ctx context.Context, name string) error {
	return c.change(ctx, func(tokens []access.Token) ([]access.Token, error) { return access.RemoveToken(tokens, name) })
}

// change stores the tokens as change makes them of those that are stored.
func (c *clusterTokens) change(ctx context.Context, change func([]access.Token) ([]access.Token, error)) error {
	for range tokenAttempts {
		text, revision, err := c.registry.ReadTokens(ctx)
		if err != nil {
			return err
		}
		tokens, err := access.ParseTokens(string(text))
		if err != nil {
			return fmt.Errorf("the tokens in etcd cannot be used: %w", err)
		}
		if tokens, err = change(tokens); err != nil {
			return err
		}
		stored, err := c.registry.SwapTokens(ctx, []byte(access.FormatTokens(tokens)), revision)
		if err != nil || stored != 0 {
			return err
		}
	}
	return errTokensBusy
}
