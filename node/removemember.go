package node

import (
	"context"
	"fmt"
	"strings"

	"github.com/weirlimit/weir/cluster"
)

// Remove implements api.Status.
func (n *node) Remove(ctx context.Context, id string) (*cluster.View, error) {
	if by := n.owners.ReachedBy(id); len(by) > 0 {
		return nil, fmt.Errorf("%q answers %s: %w (weir drain %s)", id, strings.Join(by, ", "), cluster.ErrReached, id)
	}
	v, err := n.membership.Remove(ctx, id)
	if err == nil {
		n.log.Warn("an operator removed a member from the view", "id", id, "view", v.Number)
	}
	return v, err
}
