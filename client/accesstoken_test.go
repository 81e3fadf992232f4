package client

import (
	"crypto/tls"
	"strings"
	"testing"
)

func TestTokensAreNotSentUnencrypted(t *testing.T) {
	secured := WithTLS(&tls.Config{MinVersion: tls.VersionTLS13})
	for name, tc := range map[string]struct {
		options []Option
		want    string // in the error; empty: none
	}{
		"with TLS":    {[]Option{secured, WithAccessToken("weir_x")}, ""},
		"without TLS": {[]Option{WithAccessToken("weir_x")}, "WithAccessToken needs WithTLS"},
		"empty":       {[]Option{secured, WithAccessToken("")}, "token is empty"},
		"two lines":   {[]Option{secured, WithAccessToken("x\r\ny")}, "printable ASCII"},
	} {
		n, err := NewNode("127.0.0.1:1", tc.options...)
		if (err == nil) != (tc.want == "") || err != nil && (!strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "weir_x")) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
		if err == nil {
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if !newBearer("x").RequireTransportSecurity() {
		t.Error("gRPC would send the token unencrypted")
	}
}
