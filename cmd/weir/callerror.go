package main

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// explain says in one sentence what a failed call means for the person who made it.
func (q *nodeFlags) explain(err error) error {
	answer, ok := status.FromError(err)
	if !ok {
		return err
	}
	message := answer.Message()
	switch answer.Code() {
	case codes.Unavailable:
		return q.explainUnavailable(message)
	case codes.DeadlineExceeded:
		return fmt.Errorf("node %s did not answer within %v; wait longer with --timeout, "+
			"or name another with --node", q.node, q.timeout)
	case codes.InvalidArgument:
		return fmt.Errorf("node %s refuses the request: %s", q.node, message)
	case codes.NotFound, codes.AlreadyExists, codes.Aborted, codes.FailedPrecondition:
		return fmt.Errorf("node %s: %s", q.node, message)
	case codes.Unimplemented:
		if strings.Contains(message, "admin port") {
			return fmt.Errorf("node %s: %s; name the other one with --node", q.node, message)
		}
		return fmt.Errorf("the server at %s is not a Weir node, or one of another version: %s", q.node, message)
	}
	return fmt.Errorf("node %s: %s (%v)", q.node, message, answer.Code())
}

// refusedWithoutCertificate reports whether a node has ended the connection because this client has
// shown no certificate. With TLS 1.3 that may show only as the end of the connection.
func (q *nodeFlags) refusedWithoutCertificate(message string) bool {
	return len(q.secured.Certificates) == 0 && slices.ContainsFunc([]string{"certificate required", "broken pipe", "connection reset"},
		func(text string) bool { return strings.Contains(message, text) })
}

// refusedCertificate returns why a node does not accept the certificate that this client has shown, nil if it may accept that. It has ended the connection then, which
// with TLS 1.3 may show only when the client reads.
func (q *nodeFlags) refusedCertificate(message string) error {
	isEnd := slices.ContainsFunc([]string{"remote error: tls", "server preface", "broken pipe", "connection reset"}, func(text string) bool { return strings.Contains(message, text) })
	if !isEnd || q.secured == nil || len(q.secured.Certificates) == 0 {
		return nil
	}
	shown, others := q.secured.Certificates[0], x509.NewCertPool()
	for _, der := range shown.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			others.AddCert(c)
		}
	}
	_, err := shown.Leaf.Verify(x509.VerifyOptions{Roots: q.secured.RootCAs, Intermediates: others, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err
}

// explainUnavailable goes by the texts of gRPC and of the operating system: the
// code says no more than that there was no connection.
func (q *nodeFlags) explainUnavailable(message string) error {
	if err := q.refusedCertificate(message); err != nil {
		return fmt.Errorf("node %s does not accept the certificate in --tls-cert: %w; \"weir certs client\" makes one of the CA of the cluster", q.node, err)
	}
	switch {
	case strings.Contains(message, "lookup error"):
		// Comes before the next: it may be the name server that refused.
		return fmt.Errorf("node %s cannot be reached: %s", q.node, message)
	case strings.Contains(message, "connection refused"):
		return fmt.Errorf("no node answers at %s: the connection was refused; "+
			"start one with \"weir serve\", or name another with --node", q.node)
	case strings.Contains(message, "zero addresses"):
		return fmt.Errorf("node %s cannot be reached: its name has no address", q.node)
	case q.secured != nil && strings.Contains(message, "first record does not look like a TLS handshake"):
		return fmt.Errorf("node %s has no TLS: ask it without --tls-ca", q.node)
	case q.secured != nil && q.refusedWithoutCertificate(message):
		return fmt.Errorf("node %s wants a certificate: pass --tls-cert and --tls-key (\"weir certs client\" makes them)", q.node)
	case q.secured == nil && strings.Contains(message, "server preface"):
		return fmt.Errorf("the server at %s does not speak gRPC without TLS; pass --tls-ca if it has TLS, "+
			"and give --node the node's gRPC address", q.node)
	case q.secured != nil && strings.Contains(message, "x509: certificate signed by unknown authority"):
		return fmt.Errorf("the certificate of node %s is not of the CA in --tls-ca; pass the ca.crt of its cluster", q.node)
	case q.secured != nil && len(q.secured.Certificates) > 0 && strings.Contains(message, "server preface"):
		return fmt.Errorf("the server at %s does not speak gRPC, or does not accept the certificate in --tls-cert; give --node the node's gRPC address, "+
			"and show a certificate of \"weir certs client\"", q.node)
	case strings.Contains(message, "server preface"):
		return fmt.Errorf("the server at %s does not speak gRPC; give --node the node's gRPC address", q.node)
	}
	for _, words := range []string{"connection", "transport", "error reading from server"} {
		if strings.Contains(message, words) { // gRPC's own
			return fmt.Errorf("node %s cannot be reached: %s", q.node, message)
		}
	}
	return fmt.Errorf("node %s: %s", q.node, message) // for another node, which it asked
}
