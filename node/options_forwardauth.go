package node

import (
	"fmt"
	"time"

	"github.com/weirlimit/weir/api"
)

// Defaults and values of the options that are about clients behind proxies.
const (
	defaultClientIPHeader = "X-Forwarded-For"
	maxAuthDelay          = 5 * time.Second // also what a stop may take longer; an HTTP answer has 10 s
)

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
