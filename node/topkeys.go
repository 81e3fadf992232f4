package node

import (
	"context"

	"github.com/weirlimit/weir/api"
	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/internal/decisionlog"
	"github.com/weirlimit/weir/internal/topkeys"
	"github.com/weirlimit/weir/ring"
)

// noTopKeys is the value of Options.TopKeys for no lists.
const noTopKeys = "off"

var topKeysForms = []string{decisionlog.Clear, decisionlog.Hashed, noTopKeys}

// newTopKeys returns what records the keys that are asked for most, nil if the options want none.
func (n *node) newTopKeys(params cluster.Params) *topkeys.Recorder {
	switch n.opts.TopKeys {
	case noTopKeys:
		return nil
	case decisionlog.Hashed:
		h := ring.NewHasher([ring.SecretSize]byte(params.Secret))
		return topkeys.NewRecorder(func(key, value string) string { return api.HashedValue(h, key, value) })
	}
	return topkeys.NewRecorder(nil)
}

// TopLists implements api.Status.
func (n *node) TopLists(ctx context.Context, q topkeys.Query) *cluster.TopLists {
	if n.top == nil {
		return nil
	}
	return n.owners.TopLists(ctx, q)
}
