package certs

import (
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
)

// A client of etcd uses the files as they are at the time of a connection. Broken ones leave what was read before in
// force. The other end is verified by its host.
func TestEtcdCredentials(t *testing.T) {
	a, other := newAuthority(t, "shop"), newAuthority(t, "shop")
	server := open(t, issue(t, a, node("a")), "a")
	files := issue(t, a, node("b"))
	creds, err := EtcdCredentials(files, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	at := func(host string) (shown string, err error) {
		t.Helper()
		info, err := handshake(t, server, Require, func(conn net.Conn) error {
			_, _, err := creds.ClientHandshake(t.Context(), host+":2379", conn)
			return err
		})
		if err == nil {
			shown = info.(Info).State.PeerCertificates[0].SerialNumber.String()
		}
		return shown, err
	}
	first, err := at("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.2", "etcd.example"} {
		if _, err := at(host); err == nil || !strings.Contains(err.Error(), host) {
			t.Errorf("a server that is not %s: %v", host, err)
		}
	}
	for _, path := range []string{files.Cert, files.Key} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if shown, err := at("localhost"); shown != first || err != nil {
		t.Errorf("without its files: %q, %v, want %q", shown, err, first)
	}
	issue(t, a, node("b"))
	if shown, err := at("localhost"); shown == first || err != nil {
		t.Errorf("the new certificate is not shown: %v", err)
	}
	text, err := os.ReadFile(other.CertFile())
	if err == nil {
		err = os.WriteFile(files.CA, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := at("localhost"); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("by the new CA: %v", err)
	}
	for _, bad := range []Files{{Cert: "/no/cert", Key: "/no/key"}, {CA: "/no/ca"}} {
		if _, err := EtcdCredentials(bad, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "etcd-c") || !strings.Contains(err.Error(), "/no/") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
