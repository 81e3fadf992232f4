package bench

// Report is what a Load led to.
type Report struct {
	Batch        int    `json:"batch"`       // checks per call; 0: unary
	Rate         int64  `json:"rate"`        // checks per second that were to be sent; 0: a closed loop
	Callers      int    `json:"callers"`     // calls under way at once, at most
	Connections  int    `json:"connections"` // to all targets
	Keys         int64  `json:"keys"`
	Distribution string `json:"distribution"`

	Seconds float64 `json:"seconds"` // until the last answer
	Counts
	// Unsent is how many checks of an open loop should have been sent and were not, because all
	// callers were waiting for answers until the end. They have no latency.
	Unsent          int64   `json:"unsent"`
	ChecksPerSecond float64 `json:"checks_per_second"` // answered ones

	// Latency of the calls, failed ones included.
	Latency Percentiles `json:"latency_us"`
	// SendDelay is the part of the latency of an open loop that passed before a call was sent,
	// because all callers were waiting, or this machine was busy or its timers late.
	SendDelay *Percentiles `json:"send_delay_us,omitempty"`

	ClientCPU float64 `json:"client_cpu_us_per_check"` // 0 where it cannot be measured
	Servers   []Usage `json:"servers,omitempty"`
}

// Usage is what a server used while it was asked.
type Usage struct {
	PID  int     `json:"pid"`
	Gone bool    `json:"gone,omitempty"` // it has ended, and nothing else is known
	CPU  float64 `json:"cpu_us_per_check"`
	RSS  int64   `json:"rss_bytes"` // at the end
}
