package etcd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"

	"github.com/weirlimit/weir/cluster"
)

// Stored is what a node's data directory says of the node.
type Stored struct {
	Cluster, Node string
	// Known is nil if the node has never been a member.
	Known *Known
	// Founding are the parameters with which the node is to found its cluster, as stored; nil if it may choose them.
	Founding []byte
}

// ReadStored reads what a data directory says. The error is os.ErrNotExist if no node has written there.
func ReadStored(dir string) (*Stored, error) {
	f, err := os.Open(filepath.Join(dir, stateFile))
	if err != nil {
		return nil, reason(err)
	}
	defer func() { _ = f.Close() }() // it is read only
	data, err := io.ReadAll(io.LimitReader(f, maxState+1))
	if err != nil {
		return nil, reason(err)
	}
	return parseState(data)
}

// LockDir takes a data directory, so that no node runs in it until unlock. It fails if one does.
func LockDir(dir string) (unlock func(), err error) {
	lock, err := takeDir(dir)
	if errors.Is(err, errDirInUse) {
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	return func() { _ = lock.Close() }, nil // it is gone in any case
}

// IsLocked reports whether a node runs in a data directory. It writes nothing.
func IsLocked(dir string) (bool, error) {
	if _, err := os.Stat(filepath.Join(dir, lockFile)); err != nil {
		return false, ignoreMissing(err)
	}
	unlock, err := LockDir(dir)
	if errors.Is(err, errDirInUse) {
		return true, nil
	}
	if err == nil {
		unlock()
	}
	return false, err
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// WriteFounding has the node that is started in a data directory found its cluster with these parameters. A cluster that
// exists must have the same. The caller has the directory to itself.
func WriteFounding(dir, clusterName, node string, params cluster.Params) error {
	if err := errors.Join(checkName("cluster", clusterName, maxClusterName), checkName("node", node, maxNodeID)); err != nil {
		return err
	}
	if err := checkParams(params); err != nil {
		return err
	}
	raw, err := json.Marshal(params)
	if err != nil {
		return err
	}
	data, err := encodeState(stateJSON{Cluster: clusterName, Node: node, Founding: raw})
	if err != nil {
		return err
	}
	return writeState(dir, data)
}

// lockFile is the file that the process has locked which has the directory.
const lockFile = "weir.lock"

// takeDir takes dir against other servers of this package.
func takeDir(dir string) (*fileutil.LockedFile, error) {
	lock, err := fileutil.TryLockFile(filepath.Join(dir, lockFile), os.O_WRONLY|os.O_CREATE, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return nil, errDirInUse
	}
	return lock, err
}
