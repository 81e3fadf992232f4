package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Prefix begins every token, so that programs that look for leaked secrets find them.
const Prefix = "weir_"

// secretBytes is how much of a token is random, and maxSecret the most bytes of a token's text.
const (
	secretBytes = 32
	maxSecret   = 64
)

// Bounds of the tokens of a file, and of those of a cluster.
const (
	MaxTokens      = 1000
	MaxTokensBytes = 1 << 20 // of their text
)

// A text of tokens that a program has written begins with a line that has its version. One that people write need not.
const (
	tokensMark    = "# weir tokens "
	tokensVersion = "1"
)

// Digest is the SHA-256 of a token. A slow hash would protect no more: a token has 256 random bits.
type Digest [sha256.Size]byte

// String returns the digest as 64 hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// ParseDigest reads what Digest.String returns.
func ParseDigest(text string) (d Digest, err error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(d) {
		return d, errors.New("the digest is not 64 hexadecimal digits") // without the text: it may be a token
	}
	return Digest(b), nil
}

// NewSecret returns a random token. Its digest is Hash of it.
func NewSecret() string {
	secret := make([]byte, secretBytes)
	_, _ = rand.Read(secret) // never fails
	return Prefix + base64.RawURLEncoding.EncodeToString(secret)
}

// Hash returns the digest of a token.
func Hash(token string) Digest { return sha256.Sum256([]byte(token)) }

// Token is what a node knows of a token.
type Token struct {
	Name   string
	Grants []Grant
	Digest Digest
}

// Validate refuses names that no token can have.
func (t Token) Validate() error {
	if !name.MatchString(t.Name) {
		return fmt.Errorf("name %.130q is not 1 to 128 letters, digits, '.', '_' and '-'", t.Name)
	}
	return nil
}

// String returns the token as ParseTokens reads it: its name, its roles and its digest.
func (t Token) String() string {
	return t.Name + " " + FormatGrants(t.Grants) + " " + t.Digest.String()
}

// ParseTokens reads a file of tokens: one per line, as its name, its roles and its digest with spaces in
// between. Empty lines and those behind # are skipped, except the version in the first line. The error names the line, and has nothing of a digest.
func ParseTokens(text string) ([]Token, error) {
	var tokens []Token
	number := 0
	for line := range strings.Lines(text) {
		number++
		if version, marked := strings.CutPrefix(line, tokensMark); number == 1 && marked && strings.TrimSpace(version) != tokensVersion {
			return nil, fmt.Errorf("line 1: the tokens have the format %.16q, and this version of weir reads format %s: another version of weir has written them, install that one", strings.TrimSpace(version), tokensVersion)
		}
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 3 {
			return nil, fmt.Errorf("line %d: it has %d fields, and not three: NAME ROLES DIGEST", number, len(fields))
		}
		t, err := parseToken(fields)
		if err == nil && slices.ContainsFunc(tokens, func(o Token) bool { return o.Name == t.Name || o.Digest == t.Digest }) {
			err = fmt.Errorf("token %q, or its digest, stands there twice", t.Name)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if tokens = append(tokens, t); len(tokens) > MaxTokens {
			return nil, fmt.Errorf("line %d: more than %d tokens", number, MaxTokens)
		}
	}
	return tokens, nil
}

func parseToken(fields []string) (t Token, err error) {
	t.Name = fields[0]
	if err := t.Validate(); err != nil {
		return t, err
	}
	if t.Grants, err = ParseGrants(fields[1]); err != nil {
		return t, fmt.Errorf("token %q: %w", t.Name, err)
	}
	if t.Digest, err = ParseDigest(fields[2]); err != nil {
		return t, fmt.Errorf("token %q: %w", t.Name, err)
	}
	return t, nil
}

// Why a change of tokens cannot be made.
var (
	ErrTokenExists   = errors.New("there is a token of this name or digest")
	ErrNoToken       = errors.New("there is no token of this name")
	ErrTokenRevoked  = errors.New("this token was revoked: create another one")
	ErrTooManyTokens = fmt.Errorf("there are %d tokens, or their text has %d bytes, which is the most", MaxTokens, MaxTokensBytes)
)

// AddToken returns the tokens with one more. The error is of Validate, or one of the above.
func AddToken(tokens []Token, t Token) ([]Token, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(tokens, func(o Token) bool { return o.Name == t.Name || o.Digest == t.Digest }) {
		return nil, ErrTokenExists
	}
	next := append(slices.Clone(tokens), t)
	if len(next) > MaxTokens || len(FormatTokens(next)) > MaxTokensBytes {
		return nil, ErrTooManyTokens
	}
	return next, nil
}

// RemoveToken returns the tokens without that of a name. The error is ErrNoToken.
func RemoveToken(tokens []Token, name string) ([]Token, error) {
	next := slices.DeleteFunc(slices.Clone(tokens), func(t Token) bool { return t.Name == name })
	if len(next) == len(tokens) {
		return nil, ErrNoToken
	}
	return next, nil
}

// FormatTokens returns a text that ParseTokens reads. It is never empty.
func FormatTokens(tokens []Token) string {
	var b strings.Builder
	b.WriteString(tokensMark + tokensVersion + "\n# NAME ROLES DIGEST\n")
	for _, t := range tokens {
		b.WriteString(t.String() + "\n")
	}
	return b.String()
}

// Source is where tokens come from.
type Source int

// The sources.
const (
	FromFile Source = iota
	FromCluster
	sources // how many there are
)

// entry is a token in force.
type entry struct {
	token     Token
	principal *Principal
}

// Tokens are the tokens that a node accepts. The zero value has none. It is safe for concurrent use.
type Tokens struct {
	current atomic.Pointer[map[Digest]entry]

	mu sync.Mutex
	of [sources][]Token // guarded by mu
}

// Set replaces the tokens of one source. Those that are no more there are revoked.
func (t *Tokens) Set(from Source, tokens []Token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of[from] = tokens
	var old map[Digest]entry
	if p := t.current.Load(); p != nil {
		old = *p
	}
	next := make(map[Digest]entry)
	for _, list := range t.of {
		for _, token := range list {
			if _, twice := next[token.Digest]; twice {
				continue // of two sources the file has its way
			}
			e := entry{token, nil}
			if was, kept := old[token.Digest]; kept && was.token.String() == token.String() {
				e = was
			} else {
				e.principal = New(token.Name, ByToken, token.Grants)
				e.principal.revoked = make(chan struct{})
			}
			next[token.Digest] = e
		}
	}
	t.current.Store(&next)
	for digest, was := range old {
		if next[digest].principal != was.principal {
			close(was.principal.revoked)
		}
	}
}

// List returns the tokens of one source, which the caller must not change.
func (t *Tokens) List(from Source) []Token {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of[from]
}

// find returns the principal of a token, nil if it is not known.
func (t *Tokens) find(text string) *Principal {
	current := t.current.Load()
	var memory [maxSecret]byte // on the stack, so that nothing is allocated
	if current == nil || len(text) > len(memory) {
		return nil
	}
	digest := Digest(sha256.Sum256(append(memory[:0], text...)))
	e, found := (*current)[digest]
	// The lookup takes longer or shorter by bits of the digest, which the caller cannot choose.
	if !found || subtle.ConstantTimeCompare(e.token.Digest[:], digest[:]) != 1 {
		return nil
	}
	return e.principal
}

// Caller returns the principal of a call: of its token if there is one, else of its certificate, which may be
// nil. Authorization are the values of the header field of that name. The error is a *Denial.
func (t *Tokens) Caller(certificate *Principal, authorization []string) (*Principal, error) {
	switch {
	case len(authorization) == 0 && certificate == nil:
		return nil, &Denial{Reason: "the caller has shown neither a certificate of a client nor a token"}
	case len(authorization) == 0:
		return certificate, nil
	case len(authorization) > 1:
		return nil, &Denial{Reason: fmt.Sprintf("authorization: stands there %d times", len(authorization))}
	}
	scheme, token, _ := strings.Cut(authorization[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil, &Denial{Reason: "authorization: only the scheme Bearer is understood"}
	}
	if p := t.find(strings.TrimLeft(token, " ")); p != nil {
		return p, nil
	}
	return nil, &Denial{Reason: "authorization: the token is unknown or revoked"}
}
