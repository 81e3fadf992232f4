package check

// DefaultDomain is the domain of requests that name none.
const DefaultDomain = "default"

// Bounds of requests that all APIs share.
const (
	MaxValue      = 256 // bytes of an attribute's value
	MaxAttributes = 16  // of a request, or of a descriptor
)
