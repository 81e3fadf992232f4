package main

import (
	"strings"
	"testing"
)

// Secrets are taken out wherever they stand, and all else stays.
func TestRedact(t *testing.T) {
	token := "weir_" + strings.Repeat("aB3", 14) + "x"
	for text, want := range map[string]string{
		"key: -----BEGIN EC PRIVATE KEY-----\nabc\n-----END EC PRIVATE KEY-----\nrest": "key: REDACTED\nrest",
		"cut -----BEGIN PRIVATE KEY-----\nabc":                                         "cut REDACTED",
		"token " + token + ", and":                                                     "token REDACTED, and",
		`{"Authorization": "Bearer abcdefgh"}`:                                         `{"Authorization": "Bearer REDACTED"}`,
		"authorization: abcdefghij":                                                    "authorization: REDACTED",
		"db_password=hunter2 next":                                                     "db_password=REDACTED next",
		`"client-secret": "x y"`:                                                       `"client-secret": REDACTED y"`,
		"https://me:hunter2@etcd:2379/":                                                "https://REDACTEDetcd:2379/",
		"planted here":                                                                 "REDACTED here",
		`"etcd-password-file": "/etc/weir/password"`:                                   `"etcd-password-file": "/etc/weir/password"`,
		"weir_rule_limits_total{domain=\"default\"} 4":                                 "weir_rule_limits_total{domain=\"default\"} 4",
		"http://10.0.0.1:8080/metrics":                                                 "http://10.0.0.1:8080/metrics",
	} {
		if got := string(redact([]byte(text), [][]byte{[]byte("planted")})); got != want {
			t.Errorf("redact(%q) = %q, want %q", text, got, want)
		}
	}
}
