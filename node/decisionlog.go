package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/weirlimit/weir/internal/decisionlog"
)

// Values of Options.DecisionLog for the streams of the process.
const (
	decisionsToStdout = "stdout"
	decisionsToStderr = "stderr"
)

const mebibyte = 1 << 20

// openDecisions opens the decision log, if there is one.
func (n *node) openDecisions(context.Context) error {
	o := &n.opts
	var to io.Writer
	var closeTo func() error
	torn := false
	switch o.DecisionLog {
	case "":
		return nil
	case decisionsToStdout:
		to = os.Stdout
	case decisionsToStderr:
		to = os.Stderr
	default:
		file, ends, err := newDecisionFile(o, n.log)
		if err != nil {
			return err
		}
		to, closeTo, torn = file, file.Close, ends
	}
	n.decisions = decisionlog.New(decisionlog.Config{
		Node: o.ID, Which: o.DecisionLogWhich, Keys: o.DecisionLogKeys, Share: o.DecisionLogSample, To: to, CloseTo: closeTo, Torn: torn, Metrics: n.metrics, Logger: n.log,
	})
	n.closers = append(n.closers, func() {
		if err := n.decisions.Close(); err != nil {
			n.log.Warn("decision log not finished", "error", err)
		}
	})
	return nil
}

// newDecisionFile returns the file of the decision log, which is there from now on, and whether it ends within a line.
func newDecisionFile(o *Options, log *slog.Logger) (_ *lumberjack.Logger, torn bool, err error) {
	// lumberjack opens it at the first line only, which is late for what is wrong with it.
	file, err := os.OpenFile(o.DecisionLog, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("decision-log: %w", err)
	}
	info, err := file.Stat()
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, false, fmt.Errorf("decision-log: %w", err)
	}
	if info.Mode().Perm()&mayReadOfOthers != 0 {
		// It may be meant: a group of programs that ship logs. New files get the mode of the one before.
		log.Warn("other users of this machine can use the decision log; take their rights away with chmod go= unless they are to read it", "file", o.DecisionLog, "mode", fmt.Sprintf("%#o", info.Mode().Perm()))
	}
	if info.Mode().IsRegular() && info.Size() > 0 {
		torn = endsWithinLine(o.DecisionLog, info.Size())
	}
	return &lumberjack.Logger{Filename: o.DecisionLog, MaxSize: int(o.DecisionLogSize / mebibyte), MaxBackups: o.DecisionLogFiles}, torn, nil
}

// endsWithinLine reports whether a file of that size is known to end within a line. One that cannot be read is not.
func endsWithinLine(path string, size int64) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }() // it is read only
	last := []byte{'\n'}
	_, err = file.ReadAt(last, size-1)
	return err == nil && last[0] != '\n'
}

// Bounds of Options.DecisionLogSize and DecisionLogFiles.
const (
	minDecisionLogSize  = mebibyte
	maxDecisionLogSize  = 1 << 40
	maxDecisionLogFiles = 1000
)

func badDecisionLogSize(n Bytes) string {
	if n >= minDecisionLogSize && n <= maxDecisionLogSize {
		return ""
	}
	return fmt.Sprintf("%v is not between %v and %v", n, Bytes(minDecisionLogSize), Bytes(maxDecisionLogSize))
}

func badDecisionLogFiles(n int) string {
	if n >= 1 && n <= maxDecisionLogFiles {
		return ""
	}
	return fmt.Sprintf("%d is not between 1 and %d", n, maxDecisionLogFiles)
}

func badOneOf(value string, known []string) string {
	if slices.Contains(known, value) {
		return ""
	}
	return fmt.Sprintf("%q is not one of %s", value, strings.Join(known, ", "))
}

func badShare(share float64) string {
	if share > 0 && share <= 1 {
		return ""
	}
	return fmt.Sprintf("%v is not above 0 and up to 1", share)
}
