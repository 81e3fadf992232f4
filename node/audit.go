package node

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/weirlimit/weir/internal/audit"
	"github.com/weirlimit/weir/rules"
)

// auditToStderr is the value of Options.AuditLog for the stream in which the program logs.
const auditToStderr = "stderr"

// openAudit opens the record of changes, whose lines are added to a file.
func (n *node) openAudit(context.Context) (err error) {
	n.audit = audit.New(n.opts.ID, nil)
	switch n.opts.AuditLog {
	case "":
	case auditToStderr:
		n.audit.Redirect(os.Stderr)
	default:
		f := &auditFile{path: n.opts.AuditLog, audit: n.audit, log: n.log}
		if f.file, err = f.open(); err != nil {
			return err
		}
		n.audit.Redirect(f.file)
		n.auditFile = f
		n.closers = append(n.closers, f.close)
	}
	return nil
}

// auditReload records a change that no caller has asked for: the node has found it in a file, or an xDS server has sent it.
func (n *node) auditReload(action, from string) {
	n.audit.Record(audit.Entry{Time: time.Now(), Action: action, Target: from, Outcome: codes.OK.String()})
}

// auditOwnRules records changes of rules that are not in etcd.
func (n *node) auditOwnRules() {
	action, from := "File.ReloadRules", n.opts.Rules
	if n.opts.XDSServer != "" {
		action, from = "XDS.ReloadRules", n.opts.XDSServer
	}
	if n.store == nil {
		n.rules.OnChange(func(*rules.Set) { n.auditReload(action, from) })
	}
}

// auditFile is the file to which the lines of the audit log are added. It can be opened again, after another program has
// renamed it.
type auditFile struct {
	path  string
	audit *audit.Log
	log   *slog.Logger

	mu      sync.Mutex
	file    *os.File // guarded by mu
	problem error    // guarded by mu; why it was not opened again
}

func (f *auditFile) open() (*os.File, error) {
	file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("audit-log: %w", err)
	}
	return file, nil
}

// Reopen opens the file again by its name, which is made if it is gone. If that fails, lines go on to the file before.
func (f *auditFile) Reopen() {
	f.mu.Lock()
	defer f.mu.Unlock()
	file, err := f.open()
	f.problem = err
	if err != nil {
		f.log.Error("audit log not opened again: changes are recorded in the file before", "error", err)
		return
	}
	f.audit.Redirect(file)
	_ = f.file.Close() // every line was written when it was recorded
	f.file = file
	f.log.Info("audit log opened again", "file", f.path)
}

// Err returns why the file was not opened again, or nil.
func (f *auditFile) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.problem
}

func (f *auditFile) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.audit.Redirect(nil)
	_ = f.file.Close() // as above
}
