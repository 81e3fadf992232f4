package etcd

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/weirlimit/weir/cluster"
)

// awaitTokens waits until these tokens are handed out.
func (n *testNode) awaitTokens(text string) {
	n.t.Helper()
	n.await("tokens "+text, func(content cluster.RegistryContent) bool { return string(content.Tokens) == text })
}

// What one node has stored is handed out on all, next to the rules, and a late change of what was read is refused.
func TestSwapAccessTokens(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	a, b := run(t, 0, s.Endpoint()), run(t, 0, s.Endpoint())
	a.swap("rules", 0)
	first, err := a.SwapAccessTokens(t.Context(), []byte("one"), 0)
	if err != nil || first == 0 {
		t.Fatal(first, err)
	}
	for _, n := range []*testNode{a, b} {
		n.awaitTokens("one")
		if value, revision, err := n.ReadAccessTokens(t.Context()); string(value) != "one" || revision != first || err != nil {
			t.Errorf("read %q, %d, %v", value, revision, err)
		}
	}
	if next, err := b.SwapAccessTokens(t.Context(), []byte("two"), first); next == 0 || err != nil {
		t.Error(next, err)
	}
	if next, err := a.SwapAccessTokens(t.Context(), []byte("late"), first); next != 0 || err != nil {
		t.Errorf("over others: %d, %v", next, err)
	}
	a.awaitTokens("two")
	_, rules, err := a.ReadRules(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a.swap("later", rules) // so that a late reader's watch does not begin with the tokens
	run(t, 0, s.Endpoint()).awaitTokens("two")
	if value, _, err := a.ReadRules(t.Context()); string(value) != "later" || err != nil {
		t.Errorf("rules %q, %v", value, err)
	}
	if _, err := a.SwapAccessTokens(t.Context(), nil, 0); err == nil || !strings.Contains(err.Error(), "storing the access tokens of cluster \"test\": 0 bytes are not 1 to 1048576") {
		t.Error(err)
	}
}

// Tokens that are known from an earlier run are believed while etcd has lost the cluster.
func TestTokensOfALostEtcd(t *testing.T) {
	t.Parallel()
	k := known(t)
	m := newCache(keysOf("test"), slog.New(slog.DiscardHandler))
	if err := m.recall(k); err != nil {
		t.Fatal(err)
	}
	m.replace(nil, 1)
	if got, _ := m.content(k.Params); string(got.Tokens) != "tokens" || string(got.Rules) != "rules" {
		t.Errorf("tokens %q, rules %q", got.Tokens, got.Rules)
	}
}
