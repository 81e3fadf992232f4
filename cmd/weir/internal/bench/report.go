package bench

// Report is what a Load led to.
type Report struct {
	Mode         string `json:"mode"`
	Via          string `json:"via,omitempty"` // Client or Leases, if not each caller by its own calls
	Batch        int    `json:"batch"`         // checks per call; 0: unary
	Window       int    `json:"window"`        // calls under way on each stream; 0: there are none
	Rate         int64  `json:"rate"`          // checks per second that were to be sent; 0: a closed loop
	Callers      int    `json:"callers"`       // calls under way at once, at most
	Connections  int    `json:"connections"`   // to all targets
	Keys         int64  `json:"keys"`
	Distribution string `json:"distribution"`

	Seconds float64 `json:"seconds"` // until the last answer
	Counts
	// Unsent is how many checks of an open loop should have been sent and were not, because all
	// callers were waiting for answers until the end. They have no latency.
	Unsent          int64   `json:"unsent"`
	ChecksPerSecond float64 `json:"checks_per_second"` // answered ones

	// Latency of the calls, failed ones included; of every Timed-th of them, unless Timed is 0.
	Latency Percentiles `json:"latency_us"`
	Timed   int         `json:"latency_of_one_in,omitempty"`
	// SendDelay is the part of the latency of an open loop that passed before a call was sent,
	// because all callers were waiting, or this machine was busy or its timers late.
	SendDelay *Percentiles `json:"send_delay_us,omitempty"`

	ClientCPU float64 `json:"client_cpu_us_per_check"` // 0 where it cannot be measured
	Servers   []Usage `json:"servers,omitempty"`
	// What the servers have grown by, per key that was drawn, if they are measured. What they
	// need of old anyway is not in it, and neither is a key that they knew.
	KeysAsked int64   `json:"keys_asked,omitempty"`
	Bytes     float64 `json:"rss_bytes_per_key,omitempty"`

	// Client is what the client of Via says.
	Client *ClientReport `json:"client,omitempty"`

	// Baseline is what the same load led to at a bare server, if it was asked as well.
	Baseline *Report `json:"baseline,omitempty"`
	// XBaseline is the processor time of all servers per check, as a multiple of the baseline's;
	// 0 if that was not measured.
	XBaseline float64 `json:"x_baseline,omitempty"`
}

// CompareTo notes what the same load led to at a bare server.
func (r *Report) CompareTo(baseline Report) {
	r.Baseline, r.XBaseline = &baseline, ratio(r.serverCPU(), baseline.serverCPU())
}

// measure notes what the servers have used.
func (r *Report) measure(processes []process, asked *seen) {
	var grown int64
	for _, p := range processes {
		u := p.usage(r.Checks)
		grown += u.Grown
		r.Servers = append(r.Servers, u)
	}
	if asked != nil {
		r.KeysAsked = asked.keys.Load()
		r.Bytes = ratio(float64(max(0, grown)), float64(r.KeysAsked))
	}
}

// serverCPU is the processor time of all servers per check, in microseconds. Of one that
// has ended nothing is known.
func (r *Report) serverCPU() (sum float64) {
	for _, s := range r.Servers {
		sum += s.CPU
	}
	return sum
}

// Usage is what a server used while it was asked.
type Usage struct {
	PID   int     `json:"pid"`
	Gone  bool    `json:"gone,omitempty"` // it has ended, and nothing else is known
	CPU   float64 `json:"cpu_us_per_check"`
	RSS   int64   `json:"rss_bytes"`       // at the end
	Grown int64   `json:"rss_grown_bytes"` // since the start
}
