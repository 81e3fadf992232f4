package node

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weirlimit/weir/cluster/etcd"
	"github.com/weirlimit/weir/internal/access"
)

// tokensInMemory are tokens as etcd has them. Before the next swaps others change them, as often as others says.
type tokensInMemory struct {
	text     []byte
	revision int64
	others   int
	away     error
}

func (m *tokensInMemory) ReadAccessTokens(context.Context) ([]byte, int64, error) {
	return m.text, m.revision, m.away
}

func (m *tokensInMemory) SwapAccessTokens(_ context.Context, value []byte, revision int64) (int64, error) {
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
		_, err := c.Add(t.Context(), access.Token{Name: name, Grants: []access.Grant{{Role: access.Check}}, Digest: access.Hash(secret)})
		return err
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
	if _, err := c.Remove(t.Context(), "a"); !errors.Is(err, errTokensBusy) {
		t.Error(err)
	}
	if _, err := c.Remove(t.Context(), "a"); err != nil {
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

// An etcd that was restored from a backup has revoked tokens again. A node that has seen them revoked, in this run or in one before,
// refuses them, names them in health, and removes them from etcd with the next change.
func TestRevokedTokensStayRevoked(t *testing.T) {
	var tokens access.Tokens
	stored := &tokensInMemory{}
	c := &clusterTokens{registry: stored, tokens: &tokens, log: quiet()}
	knows := func(secret string) bool {
		_, err := tokens.Caller(nil, []string{"Bearer " + secret})
		return err == nil
	}
	token := func(name, secret string) access.Token {
		return access.Token{Name: name, Grants: []access.Grant{{Role: access.Check}}, Digest: access.Hash(secret)}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(errorOf(c.Add(t.Context(), token("early", "1"))))
	must(errorOf(c.Add(t.Context(), token("kept", "2"))))
	c.use(stored.text)
	backup := stored.text
	must(errorOf(c.Remove(t.Context(), "early")))
	c.use(stored.text)
	kept := &etcd.Known{Tokens: stored.text, Revoked: c.seenRevoked()}
	before := &etcd.Known{Tokens: backup} // of a node that did not run when the token was revoked
	atRevocation := stored.text
	if knows("1") || c.Returned() != "" || len(kept.Revoked) != 1 || kept.Revoked[0].Name != "early" {
		t.Fatalf("revoked: %v, returned %q", kept.Revoked, c.Returned())
	}

	check := func(c *clusterTokens) {
		t.Helper()
		if c.use(backup); knows("1") || !knows("2") || c.Returned() != "early" || c.Err() != nil {
			t.Errorf("restored: the revoked token is known: %v, the other one: %v; returned %q, %v", knows("1"), knows("2"), c.Returned(), c.Err())
		}
		if text := string(c.stored()); strings.Contains(text, "early") || !strings.Contains(text, "kept") {
			t.Errorf("a lost etcd is given\n%s", text)
		}
	}
	check(c)
	// A restart forgets nothing, also not if it finds other tokens first.
	again := &clusterTokens{registry: stored, tokens: &tokens, log: quiet()}
	again.recall(kept)
	check(again)
	missed := &clusterTokens{registry: stored, tokens: &tokens, log: quiet()}
	missed.recall(before)
	missed.use(atRevocation)
	check(missed)

	stored.text = backup
	if _, err := c.Add(t.Context(), token("early", "1")); !errors.Is(err, access.ErrTokenRevoked) {
		t.Errorf("a revoked token is added again: %v", err)
	}
	must(errorOf(c.Add(t.Context(), token("early", "3"))))
	if c.use(stored.text); knows("1") || !knows("2") || !knows("3") || c.Returned() != "" {
		t.Errorf("after the next change: %s, returned %q", stored.text, c.Returned())
	}
	stored.text = backup
	c.use(backup)
	must(errorOf(c.Remove(t.Context(), "early")))
	if c.use(stored.text); c.Returned() != "" || strings.Contains(string(stored.text), "early") || !knows("2") {
		t.Errorf("revoked once more: %s", stored.text)
	}
	stored.text = backup
	c.use(backup)
	must(errorOf(c.Remove(t.Context(), "kept")))
	if c.use(stored.text); c.Returned() != "" || len(stored.text) > 0 && strings.Contains(string(stored.text), "early") {
		t.Errorf("after another one was revoked: %s", stored.text)
	}
}

// Tokens that are gone from etcd altogether were not revoked: another backup may have them.
func TestLostTokensAreNotRevoked(t *testing.T) {
	var tokens access.Tokens
	c := &clusterTokens{tokens: &tokens, log: quiet()}
	text := []byte(access.FormatTokens([]access.Token{{Name: "a", Grants: []access.Grant{{Role: access.Check}}, Digest: access.Hash("1")}}))
	c.use(text)
	c.use(nil)
	if _, err := tokens.Caller(nil, []string{"Bearer 1"}); err == nil {
		t.Error("a token is in force and stands nowhere")
	}
	if c.use(text); c.Returned() != "" || len(c.seenRevoked()) > 0 {
		t.Errorf("returned %q, revoked %v", c.Returned(), c.seenRevoked())
	}
	if _, err := tokens.Caller(nil, []string{"Bearer 1"}); err != nil {
		t.Error(err)
	}
	// Nor are they if another token is made before they are back, also by a node that was away meanwhile.
	other := []byte(access.FormatTokens([]access.Token{{Name: "b", Grants: []access.Grant{{Role: access.Check}}, Digest: access.Hash("2")}}))
	late := &clusterTokens{tokens: &tokens, log: quiet()}
	late.recall(&etcd.Known{Tokens: text})
	for _, c := range []*clusterTokens{c, late} {
		for _, found := range [][]byte{nil, other, text} {
			c.use(found)
		}
		if _, err := tokens.Caller(nil, []string{"Bearer 1"}); err != nil || c.Returned() != "" {
			t.Errorf("%v, returned %q", err, c.Returned())
		}
	}
}

// A node keeps a bounded number of revoked tokens, and forgets the oldest.
func TestRevokedTokensAreBounded(t *testing.T) {
	var r revokedTokens
	first, last := access.Hash("first"), access.Hash("last")
	r.add("first", first)
	for i := range etcd.MaxRevoked - 1 {
		r.add("t", access.Hash(strconv.Itoa(i)))
	}
	r.add("first", first) // it is known
	if !r.has(first) || len(r.kept()) != etcd.MaxRevoked {
		t.Fatalf("%d tokens, the first among them: %v", len(r.kept()), r.has(first))
	}
	r.add("last", last)
	if r.has(first) || !r.has(last) || len(r.kept()) != etcd.MaxRevoked || len(r.known) != etcd.MaxRevoked {
		t.Errorf("%d tokens, the first among them: %v, the last: %v", len(r.kept()), r.has(first), r.has(last))
	}
	again := recallRevoked(append(r.kept(), etcd.RevokedToken{Name: "damaged", Digest: []byte("short")}))
	if !again.has(last) || len(again.kept()) != etcd.MaxRevoked {
		t.Errorf("%d tokens from disk", len(again.kept()))
	}
}

func TestTokenNames(t *testing.T) {
	list := make([]access.Token, 7)
	for i := range list {
		list[i].Name = strconv.Itoa(i)
	}
	for n, want := range map[int]string{0: "", 1: "0", 5: "0, 1, 2, 3, 4", 7: "0, 1, 2, 3, 4 and 2 more"} {
		if got := tokenNames(list[:n]); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

// A token that was revoked is not created again before the revocation has come to the node that is asked.
func TestRevokedTokenIsNotCreatedAtOnce(t *testing.T) {
	var stored tokensInMemory
	var tokens access.Tokens
	revokes, lags := &clusterTokens{registry: &stored, tokens: &tokens, log: quiet()}, &clusterTokens{registry: &stored, tokens: &tokens, log: quiet()}
	ci := access.Token{Name: "ci", Grants: []access.Grant{{Role: access.Check}}, Digest: access.Hash("1")}
	if err := errors.Join(errorOf(revokes.Add(t.Context(), ci)), errorOf(revokes.Add(t.Context(), access.Token{Name: "other", Grants: ci.Grants, Digest: access.Hash("2")}))); err != nil {
		t.Fatal(err)
	}
	revokes.use(stored.text)
	lags.use(stored.text)
	if _, err := revokes.Remove(t.Context(), "ci"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*clusterTokens{revokes, lags} {
		if _, err := c.Add(t.Context(), ci); !errors.Is(err, access.ErrTokenRevoked) {
			t.Errorf("created again: %v", err)
		}
	}
}

// A change of the tokens names the revoked ones that it has removed as well, in its answer and in the log, and only if it has stored that.
func TestRemovalFromRestoredEtcd(t *testing.T) {
	var logs bytes.Buffer
	var tokens access.Tokens
	stored := &tokensInMemory{}
	c := &clusterTokens{registry: stored, tokens: &tokens, log: slog.New(slog.NewTextHandler(&logs, nil))}
	for _, name := range []string{"early", "kept"} {
		if _, err := c.Add(t.Context(), access.Token{Name: name, Grants: []access.Grant{{Role: access.Check}}, Digest: access.Hash(name)}); err != nil {
			t.Fatal(err)
		}
	}
	backup := stored.text
	c.use(backup)
	if removed, err := c.Remove(t.Context(), "early"); err != nil || removed != "" {
		t.Fatalf("%v, removed as well: %q", err, removed)
	}
	c.use(stored.text)
	stored.text = backup
	c.use(backup)
	const said = "have been removed from etcd"
	stored.others = tokenAttempts
	if removed, err := c.Remove(t.Context(), "kept"); !errors.Is(err, errTokensBusy) || removed != "" || strings.Contains(logs.String(), said) {
		t.Errorf("nothing was stored: %v, removed %q, the log is\n%s", err, removed, &logs)
	}
	stored.others = tokenAttempts - 1
	if removed, err := c.Remove(t.Context(), "kept"); err != nil || removed != "early" || strings.Count(logs.String(), said) != 1 {
		t.Errorf("%v, removed %q, the log is\n%s", err, removed, &logs)
	}
}

func errorOf(_ string, err error) error { return err }
