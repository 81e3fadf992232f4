package main

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/weirlimit/weir/node"
)

// redacted stands where a secret was.
const redacted = "REDACTED"

// What looks like a secret, wherever it comes from. The group, if there is one, stays.
var secretForms = []*regexp.Regexp{
	regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`),
	regexp.MustCompile(`\bweir_[A-Za-z0-9_-]{43}()`),                                          // access tokens; metrics' names are shorter words
	regexp.MustCompile(`(?i)(\b(?:authorization|bearer)\b["']?\s*[:= ]\s*)["']?[^\s"',]{8,}`), // of HTTP
	regexp.MustCompile(`(?i)(["']?\b[a-z_-]*(?:password|passwd|secret)\b["']?\s*[:=]\s*)["']?[^\s"',}]+`),
	regexp.MustCompile(`(://)[^/\s:@"]*:[^/\s@"]+@`), // user:password@ of an address
}

// leastSecret is how many bytes a file's line has that counts as a secret: shorter ones would be found everywhere.
const leastSecret = 4

// redact replaces known secrets, and what looks like one.
func redact(text []byte, secrets [][]byte) []byte {
	for _, s := range secrets {
		text = bytes.ReplaceAll(text, s, []byte(redacted))
	}
	text = secretForms[0].ReplaceAll(text, []byte(redacted))
	for _, form := range secretForms[1:] {
		text = form.ReplaceAll(text, []byte("${1}"+redacted))
	}
	return text
}

// secretsOf returns what stands in the files of secrets, and in variables, line by line: none of it may leave this machine.
func secretsOf(opts node.Options, q nodeFlags, env map[string]string) (secrets [][]byte) {
	const most = 1 << 20 // bytes of a file
	take := func(text string) {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); len(line) >= leastSecret && !strings.HasPrefix(line, "-----") {
				secrets = append(secrets, []byte(line))
			}
		}
	}
	for _, path := range []string{opts.TLSKey, opts.EtcdKey, opts.EtcdPasswordFile, opts.RLSKey, opts.XDSKey, q.files.Key, q.tokenFile} {
		f, err := os.Open(path)
		if err != nil {
			continue // it is named in doctor.json
		}
		text, _ := io.ReadAll(io.LimitReader(f, most)) // what is there counts
		_ = f.Close()                                  // it was only read
		take(string(text))
	}
	for _, header := range opts.XDSHeaders {
		_, value, _ := strings.Cut(header, ":")
		take(value)
	}
	for _, pair := range opts.XDSMetadata {
		_, value, _ := strings.Cut(pair, "=")
		take(value)
	}
	take(q.token)
	take(env[variable("token")])
	return secrets
}
