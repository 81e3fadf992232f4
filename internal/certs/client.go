package certs

import (
	"crypto/tls"
)

// ClientConfig returns the configuration of a client: it verifies nodes by the CA in a file and by
// their host names, and shows the certificate of files.Cert unless that is empty.
func ClientConfig(files Files) (*tls.Config, error) {
	pool, err := files.pool("tls")
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool}
	pair, err := files.pair("tls")
	if pair != nil {
		config.Certificates = []tls.Certificate{*pair}
	}
	return config, err
}
