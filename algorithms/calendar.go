package algorithms

// Calendar names windows that follow the calendar of a time zone, such as the
// months that begin on the 15th in Europe/Paris. It is read-only; equal ones are
// the same pointer.
type Calendar struct {
	text string
}

// String returns what ParseCalendar reads, such as "month/Europe/Paris/15".
func (c *Calendar) String() string { return c.text }
