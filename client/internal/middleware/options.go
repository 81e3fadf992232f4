package middleware

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirlimit/weir/internal/headers"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Bounds that nodes have as well.
const (
	maxCallers = 14 // in addition to the method
	maxName    = 64 // bytes
)

// Option changes a Config.
type Option[R any] func(*Config[R]) error

// By adds a caller.
func By[R any](name string, of func(R) string) Option[R] {
	return func(c *Config[R]) error {
		switch {
		case name == "" || len(name) > maxName:
			return fmt.Errorf("by: the name %.16q has %d bytes, not 1 to %d", name, len(name), maxName)
		case name == "endpoint":
			return fmt.Errorf("by: %q is what is asked for, not who asks", name)
		case of == nil:
			return fmt.Errorf("by %q: the function is nil", name)
		case len(c.Callers) == maxCallers:
			return fmt.Errorf("by %q: is one more than %d", name, maxCallers)
		}
		c.Callers = append(c.Callers, Attribute[R]{name, of})
		return nil
	}
}

// Endpoint replaces what is asked for.
func Endpoint[R any](of func(R) string) Option[R] {
	return func(c *Config[R]) error {
		if of == nil {
			return errors.New("endpoint: the function is nil")
		}
		c.Endpoint = of
		return nil
	}
}

// Route sets how a router names what is asked for.
func Route[R any](of func(R) string) Option[R] {
	return func(c *Config[R]) error {
		if of == nil {
			return errors.New("route: the function is nil")
		}
		c.Route = of
		return nil
	}
}

// Cost sets the cost.
func Cost[R any](of func(R) int64) Option[R] {
	return func(c *Config[R]) error {
		if of == nil {
			return errors.New("cost: the function is nil")
		}
		c.Cost = of
		return nil
	}
}

// Domain sets the domain.
func Domain[R any](name string) Option[R] {
	return func(c *Config[R]) error {
		if name == "" || len(name) > maxName {
			return fmt.Errorf("domain: the name %.16q has %d bytes, not 1 to %d", name, len(name), maxName)
		}
		c.Domain = name
		return nil
	}
}

// Timeout sets the timeout.
func Timeout[R any](timeout time.Duration) Option[R] {
	return func(c *Config[R]) error {
		if timeout <= 0 {
			return fmt.Errorf("timeout: %v is not positive", timeout)
		}
		c.Timeout = timeout
		return nil
	}
}

// FailClosed denies undecided requests.
func FailClosed[R any]() Option[R] {
	return func(c *Config[R]) error {
		c.FailClosed = true
		return nil
	}
}

// OnAnswer sets the function called with every answer.
func OnAnswer[R any](told func(R, *weirv1.RateLimitResponse)) Option[R] {
	return func(c *Config[R]) error {
		if told == nil {
			return errors.New("on answer: the function is nil")
		}
		c.OnAnswer = told
		return nil
	}
}

// OnError sets the function called with every error.
func OnError[R any](told func(R, error)) Option[R] {
	return func(c *Config[R]) error {
		if told == nil {
			return errors.New("on error: the function is nil")
		}
		c.OnError = told
		return nil
	}
}

// Style sets the form of the answers to clients.
func Style[R any](style headers.Style) Option[R] {
	return func(c *Config[R]) error {
		var names []string
		for _, form := range style.Forms {
			names = append(names, form.String())
		}
		if _, err := headers.ParseForms(names); err != nil {
			return fmt.Errorf("style: forms: %w", err)
		}
		if style.Jitter < 0 || style.Jitter > headers.MaxJitter {
			return fmt.Errorf("style: jitter: %d is not between 0 and %d percent", style.Jitter, headers.MaxJitter)
		}
		c.Style = style
		return nil
	}
}
