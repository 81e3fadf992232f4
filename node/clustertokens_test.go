package node

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/weirlimit/weir/internal/access"
)

// tokensInMemory are tokens as etcd has them. Before the next swaps others change them, as often as others says.
type tokensInMemory struct {
	text     []byte
	revision int64
	others   int
	away     error
}

func (m *tokensInMemory) ReadTokens(context.Context) ([]byte, int64, error) {
	return m.text, m.revision, m.away
}

func (m *tokensInMemory) SwapTokens(_ context.Context, value []byte, revision int64) (int64, error) {
	if m.others > 0 {
		m.others--
		m.revision++
	}
	if m.away != nil || revision != m.revision {
		return 0, m.away
	}
	m.text = value
	m.revision++
	return m.revision, nil
}

// Tokens are added and removed while other nodes change them, and put in force when etcd tells. What cannot be used leaves
// those before in force.
func TestClusterTokens(t *testing.T) {
	var tokens access.Tokens
	stored := &tokensInMemory{}
	c := &clusterTokens{registry: stored, tokens: &tokens, log: quiet()}
	knows := func(secret string) bool {
		_, err := tokens.Caller(nil, []string{"Bearer " + secret})
		return err == nil
	}
	add := func(name, secret string) error {
		return c.Add(t.Context(), access.Token{Name: name, Grants: []access.Grant{{Role: access.Check}}, Digest: access.Hash(secret)})
	}
	stored.others = tokenAttempts - 1
	if err := errors.Join(add("a", "1"), add("b", "2")); err != nil {
		t.Fatal(err)
	}
	if knows("1") {
		t.Error("a token is in force before etcd has told")
	}
	if !c.use(stored.text) || c.use(slices.Clone(stored.text)) || !knows("1") || !knows("2") || len(c.List()) != 2 {
		t.Errorf("in force: %v", c.List())
	}
	if err := add("a", "3"); !errors.Is(err, access.ErrTokenExists) {
		t.Error(err)
	}
	stored.others = tokenAttempts
	if err := c.Remove(t.Context(), "a"); !errors.Is(err, errTokensBusy) {
		t.Error(err)
	}
	if err := c.Remove(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if c.use(stored.text); knows("1") || !knows("2") {
		t.Errorf("in force: %v", c.List())
	}
	good := stored.text
	stored.text = []byte("broken")
	if c.use(stored.text); c.Err() == nil || !knows("2") {
		t.Errorf("broken: %v", c.Err())
	}
	if err := add("c", "4"); err == nil || string(stored.text) != "broken" {
		t.Errorf("added to what is broken: %v", err)
	}
	stored.text, stored.away = good, errors.New("away")
	if c.use(stored.text); c.Err() != nil {
		t.Error(c.Err())
	}
	if err := add("c", "4"); !errors.Is(err, stored.away) {
		t.Error(err)
	}
	if c.use(nil); knows("2") {
		t.Error("a token is in force and stands nowhere")
	}
}
