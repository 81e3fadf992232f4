package certs

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"
)

// LeafExpires returns when the certificate in a PEM file ends: the first one, as others in the file have issued it.
func LeafExpires(path string) (time.Time, error) {
	found, err := certificates(path)
	if err != nil {
		return time.Time{}, err
	}
	return found[0].NotAfter, nil
}

// AuthoritiesExpire returns when the last of the certificates in a PEM file ends.
func AuthoritiesExpire(path string) (ends time.Time, err error) {
	found, err := certificates(path)
	for _, c := range found {
		if c.NotAfter.After(ends) {
			ends = c.NotAfter
		}
	}
	return ends, err
}

// certificates reads the certificates in a PEM file: at least one, unless there is an error.
func certificates(path string) (found []*x509.Certificate, err error) {
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		found = append(found, c)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s has no certificate in PEM", path)
	}
	return found, nil
}
