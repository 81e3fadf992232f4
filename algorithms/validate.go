package algorithms

import (
	"fmt"
	"strings"
	"time"
)

// Validate reports the first field that is out of bounds, by name and value.
func (l Limit) Validate() error {
	switch {
	case !l.Algorithm.known():
		return fmt.Errorf("algorithm: %v is not one of %v", l.Algorithm, Names())
	case l.Limit < 0 || l.Limit > MaxLimit:
		return fmt.Errorf("limit: %d is not between 0 and %d", l.Limit, int64(MaxLimit))
	case l.Limit > l.Algorithm.MostTokens():
		return fmt.Errorf("limit: %d is not between 0 and %d, the most that %v keeps", l.Limit, l.Algorithm.MostTokens(), l.Algorithm)
	}
	for _, check := range []func(Limit) error{Limit.validateWindow, Limit.validateBurst, Limit.validateDelay, Limit.validateBuckets} {
		if err := check(l); err != nil {
			return err
		}
	}
	return nil
}

func (l Limit) validateWindow() error {
	switch {
	case l.Calendar != nil && !l.Algorithm.HasCalendars():
		return fmt.Errorf("calendar: %v is not for %v, only for %s", l.Calendar, l.Algorithm, strings.Join(NamesOf(Algorithm.HasCalendars), ", "))
	case l.Calendar != nil && l.Window != 0:
		return fmt.Errorf("window: %v is not 0, and calendar %v takes its place", time.Duration(l.Window), l.Calendar)
	case l.Calendar == nil && (l.Window < int64(MinWindow) || l.Window > int64(MaxWindow)):
		return fmt.Errorf("window: %v is not between %v and %v", time.Duration(l.Window), MinWindow, MaxWindow)
	}
	return nil
}

func (l Limit) validateBurst() error {
	switch {
	case l.Burst != 0 && !l.Algorithm.Drains():
		return fmt.Errorf("burst: %d is not for %v, which has none", l.Burst, l.Algorithm)
	case l.Burst < 0 || l.Burst > MaxLimit:
		return fmt.Errorf("burst: %d is not between 0 and %d", l.Burst, int64(MaxLimit))
	}
	return nil
}

func (l Limit) validateDelay() error {
	switch {
	case l.MaxDelay != 0 && !l.Algorithm.Drains():
		return fmt.Errorf("max_delay: %v is not for %v, which has none", time.Duration(l.MaxDelay), l.Algorithm)
	case l.MaxDelay < 0 || l.MaxDelay > int64(MaxWindow):
		return fmt.Errorf("max_delay: %v is not between 0s and %v", time.Duration(l.MaxDelay), MaxWindow)
	case l.MaxDelay != 0 && !l.Algorithm.Queues() && l.overbooks():
		return fmt.Errorf("max_delay: %v lets more than %d tokens be booked: %d, and %d per %v ahead",
			time.Duration(l.MaxDelay), int64(MaxLimit), l.Capacity(), l.Limit, time.Duration(l.Window))
	}
	return nil
}

// overbooks reports whether the capacity and what drains in MaxDelay are more
// than MaxLimit, and so more than a meter's state has room for.
func (l Limit) overbooks() bool {
	ahead, spare := product(l.Limit, l.MaxDelay), l.units(MaxLimit-l.Capacity())
	return !ahead.minus(spare).zero()
}

func (l Limit) validateBuckets() error {
	switch {
	case l.Buckets != 0 && !l.Algorithm.HasBuckets():
		return fmt.Errorf("buckets: %d is not for %v, which has none", l.Buckets, l.Algorithm)
	case l.Buckets < 0 || l.Buckets > MaxBuckets:
		return fmt.Errorf("buckets: %d is not between 1 and %d, or 0 for %d", l.Buckets, MaxBuckets, DefaultBuckets)
	}
	return nil
}
