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

// HostClient returns the configuration of a client of another program's service, by what the files have now: it
// verifies the server by files.CA, or by the CAs of the system if that is empty, and shows files.Cert unless that is
// empty. The server must have serverName, or the name that it is dialed by if that is empty.
func HostClient(files Files, serverName string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName}
	pair, err := files.pair("xds")
	if pair != nil {
		config.Certificates = []tls.Certificate{*pair}
	}
	if err == nil && files.CA != "" {
		config.RootCAs, err = files.pool("xds")
	}
	return config, err
}
