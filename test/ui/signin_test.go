package uitest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/weirlimit/weir/test/process"
)

// With TLS a browser signs in with a token, sees what the token's roles permit, and signs out. No script reads the cookie.
func TestSignIn(t *testing.T) {
	t.Parallel()
	p := process.NewCertificates(t)
	n := p.Start("a")
	process.AwaitMembers(t, process.Patience, n)
	token := strings.TrimSpace(weir(t, "", append([]string{"tokens", "create", "ana", "--role", "metrics,rules", "--node", n.GRPC}, p.Flags("client-admin")...)...))
	b := open(t)
	b.visit("https://" + n.HTTP + "/ui/rules")
	b.await("h1", "Sign in")
	b.accessible()
	b.do(chromedp.SendKeys(chromedp.CSS("#token"), "weir_wrong\r"))
	b.await("#problem", "unknown")
	b.do(chromedp.SendKeys(chromedp.CSS("#token"), token+"\r"))
	b.await("h1", "Rules")
	b.await(".caller", "ana")
	if cookies := eval[string](b, "document.cookie"); cookies != "" {
		t.Errorf("a script reads %q", cookies)
	}
	for _, c := range call(b, network.GetCookies, network.GetCookiesParams{URLs: []string{"https://" + n.HTTP + "/ui/"}}).Cookies {
		if !c.HTTPOnly || !c.Secure || c.SameSite != network.CookieSameSiteLax || c.Path != "/ui/" || !c.Session {
			t.Errorf("the cookie is %+v", c)
		}
	}
	b.visit("https://" + n.HTTP + "/ui/")
	b.await("h1", "Overview")
	b.await("#nodes", "ready")
	b.visit("https://" + n.HTTP + "/ui/ring")
	b.await("h1", "Your role does not permit this")
	b.accessible()

	// A link of another site keeps the session, and a form of one changes nothing, not even the session.
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<a id="link" href="https://%s/ui/rules">rules</a><form method="post" action="https://%[1]s/ui/sign-out"><button>go</button></form>`, n.HTTP)
	}))
	defer other.Close()
	b.visit(other.URL)
	b.do(chromedp.Click(chromedp.CSS("button")))
	b.await("body", "cross-origin")
	b.visit(other.URL)
	b.do(chromedp.Click(chromedp.CSS("#link")))
	b.await("h1", "Rules")
	b.await(".caller", "ana")
	b.visit("https://" + n.HTTP + "/ui/ring")
	b.do(chromedp.Click(chromedp.CSS(".caller button")))
	b.await("h1", "Sign in")
	b.visit("https://" + n.HTTP + "/ui/rules")
	b.await("h1", "Sign in")
}
