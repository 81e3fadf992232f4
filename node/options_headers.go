package node

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/internal/headers"
)

// Defaults and values of the options that are about header fields of answers.
const (
	resetDelta         = "delta"
	resetEpoch         = "epoch"
	defaultRetryJitter = "10%"
)

// style returns how decisions are told in header fields, of options that are valid.
func (o Options) style() headers.Style {
	forms, _ := headers.ParseForms(o.HTTPHeaders)
	jitter, _ := parsePercent(o.RetryJitter)
	return headers.Style{Forms: forms, Epoch: o.ResetFormat == resetEpoch, Jitter: jitter}
}

func badHTTPHeaders(forms []string) string {
	_, err := headers.ParseForms(forms)
	return problemOf(err)
}

func (o Options) badResetFormat() string {
	switch {
	case o.ResetFormat != resetDelta && o.ResetFormat != resetEpoch:
		return fmt.Sprintf("%q is not one of %s, %s", o.ResetFormat, resetDelta, resetEpoch)
	case o.ResetFormat == resetEpoch && !slices.Contains(o.HTTPHeaders, headers.XRateLimit.String()):
		return fmt.Sprintf("%s is for %v only, which http-headers has not: %s", resetEpoch, headers.XRateLimit, strings.Join(o.HTTPHeaders, ","))
	}
	return ""
}

func badRetryJitter(text string) string {
	_, err := parsePercent(text)
	return problemOf(err)
}

// parsePercent reads "10%" or "10".
func parsePercent(text string) (int, error) {
	n, err := strconv.ParseUint(strings.TrimSuffix(text, "%"), 10, 8)
	if err != nil || n > headers.MaxJitter {
		return 0, fmt.Errorf("%q is not between 0%% and %d%%", text, headers.MaxJitter)
	}
	return int(n), nil
}
