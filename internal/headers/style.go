package headers

import (
	"time"
)

// Style says how answers are written. The zero value writes Retry-After and nothing else.
type Style struct {
	// Forms are the fields to write.
	Forms []Form
	// Epoch makes X-RateLimit-Reset a time in Unix seconds instead of how many seconds
	// from now that is. In the other forms it is always the latter.
	Epoch bool
	// Jitter is how much longer than it must a denied client is told to wait, at most,
	// in percent, 0 to MaxJitter: a random share, so that not all come back at once.
	Jitter int
}

// DefaultStyle returns the default style: Draft and XRateLimit with a jitter of 10 %.
func DefaultStyle() Style { return Style{Forms: []Form{Draft, XRateLimit}, Jitter: 10} }

// seconds rounds up, as a client that comes early is denied.
func seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}
