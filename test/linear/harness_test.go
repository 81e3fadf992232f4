package linear

import "time"

// calm is how long clients ask before and after what happens.
func calm() time.Duration {
	if form.Full() {
		return 5 * time.Second
	}
	return 500 * time.Millisecond
}

// wait lets time pass.
func wait(d time.Duration) { <-time.After(d) }
