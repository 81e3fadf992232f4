package uitest

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Text that a caller chooses is text on every page.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	n := cluster(t, "a")[0]
	const evil = `"><script>document.title='taken'</script><img src=x onerror=alert(1)>`
	apply(t, n, fmt.Sprintf("domain: default\nrules:\n  - id: evil\n    when: {path: %q}\n    per: [%q]\n    limits: [{limit: 9, window: 1s}]\n", evil, `<b onclick=alert(2)>user</b>`))
	b := open(t)
	for _, path := range []string{"/ui/rules", "/ui/rules/default/evil", "/ui/edit-rule/default/evil", "/ui/edit-fields/default/evil", "/ui/backtest?domain=default&id=evil"} {
		b.visit("http://" + n.HTTP + path)
		b.clean(path)
	}
	b.visit("http://" + n.HTTP + "/ui/inspect")
	b.do(chromedp.SendKeys(chromedp.CSS("#q"), `user="<img src=x onerror=alert(3)>" path="</script><script>alert(4)</script>"`+"\r"))
	b.await("main", "Rules that do not apply")
	b.clean("inspect")
	b.visit("http://" + n.HTTP + "/ui/events")
	b.clean("events")
	if _, err := n.Client.Check(t.Context(), &weirv1.RateLimitRequest{IdentifierType: `<b onclick=alert(2)>user</b>`, Identifier: evil, Attributes: map[string]string{"path": evil}}); err != nil {
		t.Fatal(err)
	}
	b.visit("http://" + n.HTTP + "/ui/top")
	b.await("#top tbody", "onerror=alert(1)")
	b.clean("top")
}
