package access

import (
	"context"
	"fmt"
)

// Proof is how the name of a Principal is known.
type Proof string

// The proofs.
const (
	ByCertificate Proof = "certificate"
	ByToken       Proof = "token"
)

// Principal is a caller that has proven its name. It is immutable, except that a token is revoked, and safe
// for concurrent use.
type Principal struct {
	name  string
	proof Proof
	// everywhere holds the roles for all domains, and within those for one. anywhere is the union of both.
	everywhere, anywhere roleSet
	within               map[string]roleSet
	revoked              chan struct{} // closed when it is revoked; nil of a certificate
}

// New returns a principal with those grants.
func New(name string, proof Proof, grants []Grant) *Principal {
	p := &Principal{name: name, proof: proof, everywhere: setOf(Public)}
	for _, g := range grants {
		implied := g.Role.implied()
		p.anywhere |= implied
		if g.Domain == "" {
			p.everywhere |= implied
			continue
		}
		if p.within == nil {
			p.within = make(map[string]roleSet)
		}
		p.within[g.Domain] |= implied
	}
	p.anywhere |= p.everywhere
	return p
}

// Name returns the caller's name.
func (p *Principal) Name() string { return p.name }

// Proof returns how the name is known.
func (p *Principal) Proof() Proof { return p.proof }

// Revoked returns a channel that is closed when the caller's token is revoked. It is nil if that
// cannot happen.
func (p *Principal) Revoked() <-chan struct{} { return p.revoked }

// Everywhere reports whether p has the role in all domains.
func (p *Principal) Everywhere(role Role) bool { return p.everywhere.has(role) }

// Has returns a *Denial if p has the role in no domain.
func (p *Principal) Has(role Role) error {
	if p.anywhere.has(role) {
		return nil
	}
	return &Denial{Known: true, Reason: fmt.Sprintf("%s %q, known by its %s, %s", p.kind(), p.name, p.proof, lacks(role))}
}

// In returns a *Denial if p does not have the role in that domain.
func (p *Principal) In(role Role, domain string) error {
	if p.everywhere.has(role) || p.within[domain].has(role) {
		return nil
	}
	return &Denial{Known: true, Reason: fmt.Sprintf("%s %q, known by its %s, %s in domain %q", p.kind(), p.name, p.proof, lacks(role), domain)}
}

// All returns a *Denial if p does not have the role in all domains.
func (p *Principal) All(role Role) error {
	if p.everywhere.has(role) {
		return nil
	}
	return &Denial{Known: true, Reason: fmt.Sprintf("%s %q, known by its %s, %s in all domains", p.kind(), p.name, p.proof, lacks(role))}
}

func (p *Principal) kind() string {
	if p.everywhere.has(Peer) {
		return "node"
	}
	return "client"
}

func lacks(role Role) string {
	if role == Peer {
		return "has no certificate of a node, which this call needs"
	}
	return fmt.Sprintf("has not the role %q", role)
}

// key is of the principal in a context.
type key struct{}

// With returns a context of a call of p.
func With(ctx context.Context, p *Principal) context.Context { return context.WithValue(ctx, key{}, p) }

// From returns the principal that With has put into ctx. It is nil of a call that is not restricted: nodes
// without TLS, calls of this process, and checks of callers that may check in all domains.
func From(ctx context.Context) *Principal {
	p, _ := ctx.Value(key{}).(*Principal)
	return p
}

// In is Principal.In of the caller of ctx.
func In(ctx context.Context, role Role, domain string) error {
	if p := From(ctx); p != nil {
		return p.In(role, domain)
	}
	return nil
}

// All is Principal.All of the caller of ctx.
func All(ctx context.Context, role Role) error {
	if p := From(ctx); p != nil {
		return p.All(role)
	}
	return nil
}
