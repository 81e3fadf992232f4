package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/weirlimit/weir/test/bench/measure"
)

// measurement measures parts and keeps what they lead to.
type measurement struct {
	store         *store
	root          string // of the pages
	commit        string // that is measured, "" if that is not known
	short, resume bool
}

// run measures one part after the other. One that fails keeps its old results, and does not
// keep the others from being measured.
func (m measurement) run(ctx context.Context, chosen []part) error {
	binaries, err := os.MkdirTemp("", "weir-report-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(binaries) }()
	binary, err := measure.Build(ctx, binaries)
	if err != nil {
		return err
	}
	var failed []error
	for _, p := range chosen {
		if m.resume && m.has(p) {
			fmt.Printf("=== %s: measured already\n", p.name)
			continue
		}
		switch err := m.measure(ctx, binary, p); {
		case ctx.Err() != nil:
			return errors.Join(append(failed, fmt.Errorf("%s: %w; go on with -resume", p.name, context.Cause(ctx)))...)
		case err != nil:
			fmt.Printf("--- %s: FAILED: %v\n", p.name, err)
			failed = append(failed, fmt.Errorf("%s: %w", p.name, err))
		}
	}
	return errors.Join(failed...)
}

// has reports whether a part's results are of this commit and form.
func (m measurement) has(p part) bool {
	old := m.store.Parts[p.name]
	return old != nil && m.commit != "" && old.Commit == m.commit && old.Short == m.short
}

// measure runs a part's steps, within the part's patience, and stores what they report.
func (m measurement) measure(ctx context.Context, binary string, p part) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.patience, fmt.Errorf("not done after %v", p.patience))
	defer cancel()
	fresh := newMeasured(m.commit, m.short)
	started := time.Now()
	for _, st := range p.steps {
		fmt.Printf("=== %s: %v\n", p.name, st)
		for range st.rounds {
			results, err := st.run(ctx, binary, os.Stdout)
			if err != nil {
				return cmp.Or(context.Cause(ctx), err)
			}
			fresh.keep(st, results)
		}
	}
	fresh.Seconds = int(time.Since(started).Seconds())
	m.store.Parts[p.name] = fresh
	if err := m.store.save(); err != nil {
		return err
	}
	fmt.Printf("--- %s: %d s\n", p.name, fresh.Seconds)
	return render(m.root, m.store)
}

func (s step) run(ctx context.Context, binary string, log io.Writer) (measure.Results, error) {
	if s.cpus == nil {
		return measure.Weir(ctx, binary, s.name, s.args...)
	}
	return measure.GoTest(ctx, log, s.dir, s.cpus, s.args...)
}

// commit is the one of the working tree, with a plus if something but documentation was
// changed since, or "" if git does not know.
func commit(ctx context.Context) string {
	head, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=10", "HEAD").Output()
	if err != nil {
		return ""
	}
	changed, err := exec.CommandContext(ctx, "git", "status", "--porcelain", "--", ":!docs", ":!*.md").Output()
	if err != nil {
		return ""
	}
	id := strings.TrimSpace(string(head))
	if len(bytes.TrimSpace(changed)) > 0 {
		id += "+"
	}
	return id
}
