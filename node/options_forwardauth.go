package node

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/api"
	"github.com/weirlimit/weir/internal/headers"
)

// Defaults and values of the options that are about HTTP clients and proxies.
const (
	resetDelta            = "delta"
	resetEpoch            = "epoch"
	defaultRetryJitter    = "10%"
	defaultClientIPHeader = "X-Forwarded-For"
	maxAuthDelay          = 5 * time.Second // also what a stop may take longer; an HTTP answer has 10 s
)

// style returns how decisions are told in header fields, of options that are valid.
func (o Options) style() headers.Style {
	forms, _ := headers.ParseForms(o.HTTPHeaders)
	jitter, _ := parsePercent(o.RetryJitter)
	return headers.Style{Forms: forms, Epoch: o.ResetFormat == resetEpoch, Jitter: jitter}
}

// auth returns how requests that proxies ask about become attributes, of options that are
// valid.
func (o Options) auth() api.AuthConfig {
	var c api.AuthConfig
	c.TrustedProxies, _ = api.ParseTrustedProxies(o.TrustedProxies)
	c.ClientIPHeader, _ = api.ParseClientIP(o.ClientIPHeader)
	c.Attributes, _ = api.ParseAuthAttributes(o.AuthAttribute)
	c.MaxDelay = o.AuthMaxDelay
	return c
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

func badTrustedProxies(texts []string) string {
	_, err := api.ParseTrustedProxies(texts)
	return problemOf(err)
}

func badClientIPHeader(name string) string {
	_, err := api.ParseClientIP(name)
	return problemOf(err)
}

func badAuthAttributes(texts []string) string {
	_, err := api.ParseAuthAttributes(texts)
	return problemOf(err)
}

func badAuthMaxDelay(d time.Duration) string {
	if d >= 0 && d <= maxAuthDelay {
		return ""
	}
	return fmt.Sprintf("%v is not between 0s and %v", d, maxAuthDelay)
}

func problemOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
