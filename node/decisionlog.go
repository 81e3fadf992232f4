package node

import (
	"context"
	"fmt"
	"io"
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
	switch o.DecisionLog {
	case "":
		return nil
	case decisionsToStdout:
		to = os.Stdout
	case decisionsToStderr:
		to = os.Stderr
	default:
		file, err := newDecisionFile(o)
		if err != nil {
			return err
		}
		n.decisionFile, to = file, file
		n.closers = append(n.closers, func() { _ = file.Close() }) // every line was written before
	}
	n.decisions = decisionlog.New(decisionlog.Config{
		Node: o.ID, Which: o.DecisionLogWhich, Keys: o.DecisionLogKeys, Share: o.DecisionLogSample, To: to, Metrics: n.metrics, Logger: n.log,
	})
	n.closers = append(n.closers, func() {
		if err := n.decisions.Close(); err != nil {
			n.log.Warn("decision log not finished", "error", err)
		}
	})
	return nil
}

// newDecisionFile returns the file of the decision log, which is there from now on.
func newDecisionFile(o *Options) (*lumberjack.Logger, error) {
	// lumberjack opens it at the first line only, which is late for what is wrong with it.
	file, err := os.OpenFile(o.DecisionLog, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("decision-log: %w", err)
	}
	return &lumberjack.Logger{Filename: o.DecisionLog, MaxSize: int(o.DecisionLogSize / mebibyte), MaxBackups: o.DecisionLogFiles}, nil
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
