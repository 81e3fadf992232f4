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

// connVersionError says that another node speaks another version of the protocol between nodes.
type connVersionError struct {
	version uint64
}

// Error says what to do.
func (e connVersionError) Error() string {
	on := "that"
	if e.version > connVersion {
		on = "this"
	}
	return fmt.Sprintf("speaks version %d of the protocol between nodes, and this node version %d: install the newer version of weir on %s node", e.version, connVersion, on)
}
