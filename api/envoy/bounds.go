package envoy

// Bounds of what an Envoy may send. What is beyond them is answered all the same: see Service.add.
const (
	// MaxMessage is the most bytes of a RateLimitRequest, which repeats what clients put into headers. An Envoy
	// accepts 60 KiB of headers by default.
	MaxMessage = 4 << 20

	maxDescriptors = 4096   // of a request
	maxLimits      = 8192   // limits that may apply to one of them; cluster asks one node for as many at once
	maxInspected   = 100    // descriptors of a request that a person has explained
	maxNameBytes   = 1024   // bytes of what metrics call a limit
	maxNames       = 10_000 // names of limits that metrics tell apart
)
