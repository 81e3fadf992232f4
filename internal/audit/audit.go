// Package audit keeps a record of the changes that callers have asked a node for, and of those that it has found in its files.
package audit

import (
	"encoding/json"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/asciijson"
)

// Bounds of what is kept.
const (
	maxEntries = 1000 // in memory
	maxField   = 512  // bytes of a field that the caller chooses
)

// lineVersion is the version of a line, which rises if a field gets another meaning or goes. A field may be added without.
const lineVersion = 1

// Entry is one change that a node was asked for, or has found in a file or at an xDS server: then it has no caller.
type Entry struct {
	Time   time.Time `json:"time"`   // when the call ended
	Node   string    `json:"node"`   // that was asked
	Client string    `json:"client"` // the caller's name; empty without TLS
	Proof  string    `json:"proof"`  // how the name is known: certificate or token; empty without TLS
	From   string    `json:"from"`   // the caller's address
	Action string    `json:"action"` // the method, such as Cluster.DrainNode; or File.ReloadRules, File.ReloadAccessTokens or XDS.ReloadRules
	Target string    `json:"target"` // what was to be changed
	// Outcome is OK or the name of the call's status, and Reason its message.
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"`
}

// Log is the record of one node: a stream of lines of JSON, and the last entries in memory. It is safe for
// concurrent use. A nil *Log records nothing.
type Log struct {
	node string

	mu      sync.Mutex
	to      io.Writer // guarded by mu; nil: entries are kept in memory only
	entries []Entry   // guarded by mu; a ring once it has maxEntries, whose oldest is at next
	next    int       // guarded by mu
	problem error     // guarded by mu; of the last line
}

// New returns the record of a node, whose lines go to a writer, which may be nil.
func New(node string, to io.Writer) *Log { return &Log{node: node, to: to} }

// Redirect has lines go to another writer. When it returns, none goes to the writer before any more.
func (l *Log) Redirect(to io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = to
}

// Record adds an entry, with the node's id. Fields that are too long are cut off.
func (l *Log) Record(e Entry) {
	if l == nil {
		return
	}
	e.Node = l.node
	for _, field := range []*string{&e.Client, &e.From, &e.Action, &e.Target, &e.Reason} {
		*field = clip(*field)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.entries) < maxEntries {
		l.entries = append(l.entries, e)
	} else {
		l.entries[l.next] = e
		l.next = (l.next + 1) % maxEntries
	}
	if l.to != nil {
		_, l.problem = l.to.Write(Line(e))
	}
}

// Entries returns the last entries, the oldest first.
func (l *Log) Entries() []Entry {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return append(append([]Entry(nil), l.entries[l.next:]...), l.entries[:l.next]...)
}

// Err returns why the last line could not be written, or nil.
func (l *Log) Err() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.problem
}

// clip cuts a text off, and makes it valid UTF-8.
func clip(text string) string {
	if len(text) > maxField {
		text = text[:maxField] + "..."
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// Line returns an entry as one line of JSON in printable ASCII, so that no text in it can end the line or
// direct a terminal.
func Line(e Entry) []byte {
	text, err := json.Marshal(struct {
		Version int `json:"version"`
		Entry
	}{lineVersion, e})
	if err != nil { // no field of an Entry can fail
		panic(err)
	}
	return append(asciijson.ASCII(make([]byte, 0, len(text)+1), text), '\n')
}
