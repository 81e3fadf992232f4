package envoy

// Bounds of what files may ask for.
const (
	maxText          = 1024    // bytes of a domain, key, value or name
	maxDepth         = 16      // descriptors one in the other
	maxNodes         = 100_000 // descriptors in a set, and values of their metadata
	maxMetadataDepth = 32      // values one in the other
	maxVisits        = 2 << 20 // elements of YAML that are read for descriptors, with those that aliases repeat
)
