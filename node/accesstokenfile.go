package node

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/access"
)

// lookAtTokens is how often the file of tokens is read.
const lookAtTokens = 250 * time.Millisecond

// tokenFile puts the tokens of a file in force, and those that it has later. A file that cannot be used
// leaves the tokens before in force.
type tokenFile struct {
	path   string
	tokens *access.Tokens
	log    *slog.Logger
	reread chan struct{} // holds one value when the file should be read at once

	onChange func() // called when other tokens have come into force; set before Run

	mu      sync.Mutex
	text    string // guarded by mu; that is in force
	problem error  // guarded by mu; of the file as it is now
}

// openTokenFile reads the file. The error says why it cannot be used.
func openTokenFile(path string, tokens *access.Tokens, log *slog.Logger) (*tokenFile, error) {
	f := &tokenFile{path: path, tokens: tokens, log: log, reread: make(chan struct{}, 1), onChange: func() {}}
	text, parsed, err := f.read()
	if err != nil {
		return nil, err
	}
	f.text = text
	tokens.Set(access.FromFile, parsed)
	return f, nil
}

// Run reads the file again when it changes, until ctx ends.
func (f *tokenFile) Run(ctx context.Context) {
	tick := time.NewTicker(lookAtTokens)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-f.reread:
		}
		f.look()
	}
}

// Reread has Run read the file at once. It does not block.
func (f *tokenFile) Reread() {
	select {
	case f.reread <- struct{}{}:
	default:
	}
}

// Err returns why the file as it is now cannot be used, or nil.
func (f *tokenFile) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.problem
}

// look reads the file, and puts its tokens in force if it has changed and can be used.
func (f *tokenFile) look() {
	text, parsed, err := f.read()
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.problem
	f.problem = err
	switch {
	case err != nil:
		if before == nil || before.Error() != err.Error() {
			f.log.Error("access tokens not read again: those before stay in force", "error", err)
		}
	case text != f.text:
		f.text = text
		f.tokens.Set(access.FromFile, parsed)
		f.log.Info("tokens read again", "file", f.path, "tokens", len(parsed))
		f.onChange()
	}
}

// read reads and parses the file.
func (f *tokenFile) read() (string, []access.Token, error) {
	file, err := os.Open(f.path)
	if err != nil {
		return "", nil, fmt.Errorf("tokens: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(file, access.MaxTokensBytes+1))
	if err == nil && len(text) > access.MaxTokensBytes {
		err = fmt.Errorf("more than %d bytes", access.MaxTokensBytes)
	}
	if err != nil {
		return "", nil, fmt.Errorf("tokens: %s: %w", f.path, err)
	}
	parsed, err := access.ParseTokens(string(text))
	if err != nil {
		return "", nil, fmt.Errorf("tokens: %s: %w", f.path, err)
	}
	return string(text), parsed, nil
}

func (o Options) badTokens() string {
	if o.Tokens != "" && o.TLSCert == "" {
		return "an access token would travel unencrypted: --tokens needs --tls-cert, --tls-key and --tls-ca"
	}
	return ""
}
