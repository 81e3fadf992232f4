package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/weirlimit/weir/internal/access"
)

// TokenCookie is the name of the cookie in which browsers show a token to the dashboard, and only to it.
const TokenCookie = "__Secure-weir"

// Dashboard are the pages at /ui/.
type Dashboard interface {
	http.Handler
	// Refuse answers a request whose caller may not make it. Known says that the caller has proven its name, which CallerName
	// then returns.
	Refuse(w http.ResponseWriter, r *http.Request, known bool, reason string)
}

// backtestPattern is the one of the dashboard to which logs are sent.
const backtestPattern = "POST /ui/backtest"

// isUI reports whether a pattern of needs is one of the dashboard.
func isUI(pattern string) bool { return strings.Contains(pattern, " /ui") }

// authorizationOfCookie returns what stands for the header field of that name in requests of browsers. The cookie is left over, and
// counts for nothing, if its token is not in force and the connection has a certificate, which proves its caller by itself.
func (a *Access) authorizationOfCookie(r *http.Request) []string {
	c, err := r.Cookie(TokenCookie)
	if err != nil || c.Value == "" || a.certificate(r) != nil && a.CheckToken(c.Value) != nil {
		return nil
	}
	return []string{"Bearer " + c.Value}
}

// CheckToken returns an error unless the token is in force. It is for a form in which people sign in.
func (a *Access) CheckToken(token string) error {
	if a == nil || a.Tokens == nil {
		return &access.Denial{Reason: "this node has no TLS, and no tokens"}
	}
	_, err := a.Tokens.Caller(nil, []string{"Bearer " + token})
	return err
}

// CallerName returns the name of the caller of a request that Protect has passed on or had refused, and how it is known. Both are empty
// without TLS, and for callers that are not known.
func CallerName(ctx context.Context) (name, proof string) {
	if p := access.From(ctx); p != nil {
		return p.Name(), string(p.Proof())
	}
	return "", ""
}
