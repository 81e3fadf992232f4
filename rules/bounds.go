package rules

// Bounds of what rules may ask for. They keep the cost of loading and of one
// Match within what a node can spare.
const (
	maxFiles     = 1000     // in a directory, and directories below it
	maxFileSize  = 4 << 20  // bytes; the YAML parser needs up to 200 times as many
	maxTotalSize = 64 << 20 // bytes, all files of a set
	maxRules     = 100_000  // in a set
	maxStored    = 16 << 20 // bytes of the rules of a cluster, before they are compressed

	maxFilesDepth   = 32     // directories one in the other
	maxFilesVisited = 10_000 // names below a directory that are looked at to name what is not read
	maxUnread       = 20     // files that are named as not read; of more, the number

	maxDomain    = 64  // bytes
	maxID        = 128 // bytes
	maxAttribute = 64  // bytes of an attribute's name
	maxValue     = 256 // bytes of an exact value or prefix

	maxConditions = 16  // per rule
	maxList       = 256 // values of one condition
	maxPer        = 16  // per set
	maxPerSets    = 8   // per rule
	maxLimits     = 8   // per rule
	maxReplaces   = 64  // per rule

	maxCalendars = 1024 // distinct ones in a set

	maxAnchor = 31 // of any calendar

	maxOver = 1000 // percent of a limit above it
	maxUpTo = 1000 // percent of a limit with what is above it

	maxRegexp       = 1024      // bytes of one expression
	maxInstructions = 1000      // of one compiled expression; 256 bytes take it about 1 ms at worst
	maxRegexpMemory = 128 << 20 // bytes of all compiled expressions of a set, estimated
)
