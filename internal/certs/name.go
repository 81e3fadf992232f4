package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/weirlimit/weir/internal/access"
)

// Kind says what a certificate is for.
type Kind string

// The kinds of certificates.
const (
	Node   Kind = "node"
	Client Kind = "client"
)

// Name is the subject of a certificate.
type Name struct {
	Cluster string
	Kind    Kind
	ID      string // of the node, or the client's name
	Role    string // of a client, as access.ParseGrants reads it; empty of a node
}

// prefix is what the URI of a certificate begins with, behind "urn:".
const prefix = "weir:"

// form is shown where a URI or a name is not as it must be.
const form = "urn:weir:CLUSTER:node:ID or urn:weir:CLUSTER:client:NAME:ROLE"

// errNoName is the problem of a certificate without a URI of Weir.
var errNoName = errors.New("the certificate names no node or client of Weir: it has no URI " + form)

// word is what clusters, nodes and clients may be called.
var word = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// uri returns the name as it stands in a certificate.
func (n Name) uri() *url.URL {
	parts := []string{n.Cluster, string(n.Kind), n.ID}
	if n.Kind == Client {
		parts = append(parts, n.Role)
	}
	return &url.URL{Scheme: "urn", Opaque: prefix + strings.Join(parts, ":")}
}

// String returns the name for people, such as `node "a" of cluster "default"`.
func (n Name) String() string { return fmt.Sprintf("%s %q of cluster %q", n.Kind, n.ID, n.Cluster) }

// validate refuses a name that no certificate can have.
func (n Name) validate() error {
	switch {
	case !word.MatchString(n.Cluster):
		return fmt.Errorf("cluster %q is not 1 to 128 letters, digits, '.', '_' and '-'", n.Cluster)
	case !word.MatchString(n.ID):
		return fmt.Errorf("%s %q is not 1 to 128 letters, digits, '.', '_' and '-'", n.Kind, n.ID)
	case n.Kind == Client:
		_, err := access.ParseGrants(n.Role)
		return err
	}
	return nil
}

// principal returns what a caller with a certificate of that name may do. The certificate of a node
// permits the calls between nodes, on connections of these only.
func (n Name) principal(betweenNodes bool) *access.Principal {
	var grants []access.Grant
	switch {
	case n.Kind == Client:
		grants, _ = access.ParseGrants(n.Role) // validate has read them
	case betweenNodes:
		grants = []access.Grant{{Role: access.Peer}}
	}
	return access.New(n.ID, access.ByCertificate, grants)
}

// Principal returns what a client may do that has connected with TLS, nil if it has shown no
// certificate.
func Principal(state *tls.ConnectionState) *access.Principal {
	if state == nil || len(state.PeerCertificates) == 0 {
		return nil
	}
	n, err := nameOf(state.PeerCertificates[0])
	if err != nil { // the handshake has refused it
		return nil
	}
	return n.principal(false)
}

// nameOf returns the name in a certificate. The error says what is wrong with the certificate.
func nameOf(cert *x509.Certificate) (Name, error) {
	for _, u := range cert.URIs {
		if rest, found := strings.CutPrefix(u.Opaque, prefix); u.Scheme == "urn" && found {
			return parseName(rest)
		}
	}
	return Name{}, errNoName
}

// parseName parses what follows urn:weir: in a URI.
func parseName(text string) (Name, error) {
	parts := strings.SplitN(text, ":", 4) // a role may have a domain
	n := Name{}
	switch {
	case len(parts) == 3 && Kind(parts[1]) == Node:
		n = Name{Cluster: parts[0], Kind: Node, ID: parts[2]}
	case len(parts) == 4 && Kind(parts[1]) == Client:
		n = Name{Cluster: parts[0], Kind: Client, ID: parts[2], Role: parts[3]}
	default:
		return n, fmt.Errorf("the certificate's URI %q is not %s", "urn:"+prefix+text, form)
	}
	return n, n.validate()
}
