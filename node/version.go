package node

import (
	"cmp"
	"runtime/debug"
)

// version is set by releases, with
//
//	go build -ldflags "-X github.com/weirlimit/weir/node.version=v1.2.3"
var version string

// Version returns the version of the software: the release's, or else what the go
// command knows of the module.
func Version() string {
	module := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		module = info.Main.Version
	}
	return cmp.Or(version, module, "(devel)")
}
