package access

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Role permits a set of calls.
type Role uint8

// The roles. Rules includes Check, and Admin includes Check, Rules and Metrics. Callers need no credentials for
// Public. Peer is for the calls between nodes: no client can have it.
const (
	Public Role = iota
	Check
	Rules
	Metrics
	Admin
	Peer
	roleCount // how many there are
)

var roleNames = [roleCount]string{Public: "public", Check: "check", Rules: "rules", Metrics: "metrics", Admin: "admin", Peer: "peer"}

// String returns the role as people write it.
func (r Role) String() string {
	if r < roleCount {
		return roleNames[r]
	}
	return fmt.Sprintf("Role(%d)", uint8(r))
}

// ClientRoles are the names of the roles that a client may have.
var ClientRoles = []string{"check", "rules", "admin", "metrics"}

// implied returns the roles that r permits.
func (r Role) implied() roleSet {
	switch r {
	case Rules:
		return setOf(Public, Check, Rules)
	case Admin:
		return setOf(Public, Check, Rules, Metrics, Admin)
	default:
		return setOf(Public, r)
	}
}

type roleSet uint8

func setOf(roles ...Role) (s roleSet) {
	for _, r := range roles {
		s |= 1 << r
	}
	return s
}

func (s roleSet) has(r Role) bool { return s&(1<<r) != 0 }

// Grant is a role, in one domain or, if Domain is empty, in all.
type Grant struct {
	Role   Role
	Domain string
}

// String returns the grant as ParseGrants reads it, such as "check" or "rules:shop".
func (g Grant) String() string {
	if g.Domain == "" {
		return g.Role.String()
	}
	return g.Role.String() + ":" + g.Domain
}

// FormatGrants returns grants as ParseGrants reads them.
func FormatGrants(grants []Grant) string {
	texts := make([]string, len(grants))
	for i, g := range grants {
		texts[i] = g.String()
	}
	return strings.Join(texts, ",")
}

// Bounds of names and grants.
const (
	maxGrants      = 64
	maxGrantsBytes = 2048 // of their text
)

// grantDomain is what a domain may be called that has roles of its own.
var grantDomain = regexp.MustCompile(`^[A-Za-z0-9._/-]{1,64}$`)

// name is what clients may be called.
var name = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// ParseGrants reads roles with commas in between, each with a domain or without, such as
// "check:shop,rules:shop" or "metrics". The error names the one that is bad.
func ParseGrants(text string) ([]Grant, error) {
	if len(text) > maxGrantsBytes {
		return nil, fmt.Errorf("roles have %d bytes, more than %d", len(text), maxGrantsBytes)
	}
	var grants []Grant
	for item := range strings.SplitSeq(text, ",") {
		role, domain, scoped := strings.Cut(item, ":")
		i := slices.Index(roleNames[:], role)
		switch {
		case !slices.Contains(ClientRoles, role):
			return nil, fmt.Errorf("role %q is none of %s", item, strings.Join(ClientRoles, ", "))
		case scoped && role != Check.String() && role != Rules.String():
			return nil, fmt.Errorf("role %q: %s has no domain, only check and rules have", item, role)
		case scoped && !grantDomain.MatchString(domain):
			return nil, fmt.Errorf("role %q: domain %q is not 1 to 64 letters, digits, '.', '_', '-' and '/'", item, domain)
		}
		grants = append(grants, Grant{Role(i), domain})
	}
	if len(grants) > maxGrants {
		return nil, fmt.Errorf("%d roles are more than %d", len(grants), maxGrants)
	}
	return grants, nil
}
