package node

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimit/weir/cluster/etcd"
	"github.com/weirlimit/weir/internal/access"
)

// namedTokens is how many tokens a message names.
const namedTokens = 5

// revokedTokens are the tokens that a node has seen revoked. The zero value has none. It forgets the oldest beyond
// etcd.MaxRevoked.
type revokedTokens struct {
	order []etcd.RevokedToken // the oldest first; its items are read-only
	known map[access.Digest]bool
}

// recallRevoked takes what a node has kept on disk. An item without a digest says nothing, and is left out.
func recallRevoked(kept []etcd.RevokedToken) (r revokedTokens) {
	for _, k := range kept {
		if len(k.Digest) == len(access.Digest{}) {
			r.add(k.Name, access.Digest(k.Digest))
		}
	}
	return r
}

// note adds the tokens that stood in before, and stand no more in now.
func (r *revokedTokens) note(before, now []access.Token) {
	stay := make(map[access.Digest]bool, len(now))
	for _, t := range now {
		stay[t.Digest] = true
	}
	for _, t := range before {
		if !stay[t.Digest] {
			r.add(t.Name, t.Digest)
		}
	}
}

func (r *revokedTokens) add(name string, digest access.Digest) {
	if r.known[digest] {
		return
	}
	if r.known == nil {
		r.known = make(map[access.Digest]bool)
	}
	r.known[digest] = true
	r.order = append(r.order, etcd.RevokedToken{Name: name, Digest: slices.Clone(digest[:])})
	if len(r.order) > etcd.MaxRevoked {
		delete(r.known, access.Digest(r.order[0].Digest))
		r.order = r.order[1:]
	}
}

func (r *revokedTokens) has(digest access.Digest) bool { return r.known[digest] }

// kept returns a copy for the disk.
func (r *revokedTokens) kept() []etcd.RevokedToken { return slices.Clone(r.order) }

// divide tells the tokens that may be in force from those that were revoked.
func (r *revokedTokens) divide(tokens []access.Token) (inForce, revoked []access.Token) {
	for _, t := range tokens {
		if r.known[t.Digest] {
			revoked = append(revoked, t)
		} else {
			inForce = append(inForce, t)
		}
	}
	return inForce, revoked
}

// tokenNames names tokens, at most namedTokens of them.
func tokenNames(tokens []access.Token) string {
	var names []string
	for _, t := range tokens[:min(len(tokens), namedTokens)] {
		names = append(names, t.Name)
	}
	text := strings.Join(names, ", ")
	if rest := len(tokens) - len(names); rest > 0 {
		text += fmt.Sprintf(" and %d more", rest)
	}
	return text
}
