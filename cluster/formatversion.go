package cluster

import "fmt"

// What nodes write and send carries a version. It rises when an older node would misread what a newer one writes. Such a
// node refuses it then, and its operator learns which of the two to update.
const (
	// connVersion is that of connections, their frames, and calls between nodes.
	connVersion = 4
	// connMinorVersion is that of what was added to version connVersion since, and that older nodes would misread. A node says in its
	// hello up to which minor version it reads, and is sent nothing that is newer. Minor version 1 adds opTrace.
	connMinorVersion = 1
)

// VersionError says that this node does not read a version. It is for what is stored.
type VersionError struct {
	Subject    string // such as "view 7"
	Got, Reads uint64 // the versions; 0 is one that is not given
}

// Error says what to do.
func (e *VersionError) Error() string {
	if e.Got > e.Reads {
		return fmt.Sprintf("%s is of version %d of its format, and this node reads version %d: a newer version of weir has written it, install that one on this node", e.Subject, e.Got, e.Reads)
	}
	return fmt.Sprintf("%s is of version %d of its format, and this node reads version %d: an older version of weir has written it, start this node with that one", e.Subject, e.Got, e.Reads)
}

// connVersionError says that another node speaks another version of the protocol between nodes.
type connVersionError struct {
	version uint64
}

// Error says what to do.
func (e connVersionError) Error() string {
	if e.version > connVersion {
		return fmt.Sprintf("speaks version %d of the protocol between nodes, and this node version %d: install the newer version of weir on this node", e.version, connVersion)
	}
	return fmt.Sprintf("speaks version %d of the protocol between nodes, and this node version %d: install the newer version of weir on that node", e.version, connVersion)
}
