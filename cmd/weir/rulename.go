package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
)

// defaultDomain is the domain of rules where none is named.
const defaultDomain = "default"

// ruleName is a rule as a command line names it: by id and --domain, or as DOMAIN/ID, as
// diffs show it.
type ruleName struct{ domain, id string }

// String returns what diffs show.
func (n ruleName) String() string { return cmp.Or(n.domain, defaultDomain) + "/" + n.id }

// resolve returns the name of the rule that is meant. Ids may have slashes, too, so without
// --domain a name such as a/b may mean the rule a/b of the domain default or the rule b of
// the domain a: the one that the node runs. The error says so if it runs both.
func (n ruleName) resolve(ctx context.Context, c *client.Node) (ruleName, error) {
	domain, id, slash := strings.Cut(n.id, "/")
	if !slash || domain == "" || id == "" || n.domain != "" {
		return n, nil
	}
	other := ruleName{domain, id}
	isOther, err := other.exists(ctx, c)
	if err != nil || !isOther {
		return n, err
	}
	isThis, err := n.exists(ctx, c)
	if isThis {
		return n, fmt.Errorf("%q can be the rule %s or the rule %s; choose one with --domain", n.id, n, other)
	}
	return other, err
}

// exists reports whether the node runs a rule of that name.
func (n ruleName) exists(ctx context.Context, c *client.Node) (bool, error) {
	_, err := c.Config().GetRateLimit(ctx, &weirv1.GetRateLimitRequest{Domain: n.domain, Id: n.id})
	if code := status.Code(err); code == codes.NotFound || code == codes.InvalidArgument { // it cannot be a name
		return false, nil
	}
	return err == nil, err
}
