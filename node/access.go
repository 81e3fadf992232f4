package node

import (
	"context"

	"github.com/weirlimit/weir/api"
	"github.com/weirlimit/weir/internal/access"
	"github.com/weirlimit/weir/internal/certs"
)

// openAccess makes what knows the callers of this node and their roles, and reads the file of tokens, if it is given. It
// comes after openCerts: without a certificate there is no access, and all is permitted.
func (n *node) openAccess(context.Context) (err error) {
	if n.certs == nil {
		return nil
	}
	n.access = &api.Access{Tokens: new(access.Tokens), Certificate: certs.Principal, Audit: n.audit}
	if n.opts.Tokens != "" {
		if n.tokens, err = openTokenFile(n.opts.Tokens, n.access.Tokens, n.log); err != nil {
			return err
		}
		n.tokens.onChange = func() { n.auditReload("File.ReloadAccessTokens", n.opts.Tokens) }
	}
	return nil
}
