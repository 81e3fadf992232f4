package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/node"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    "Print the version, the commit it was built from, and the Go version that built it.",
		Example: "  weir version",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(a.stdout, versionText())
			return err
		},
	}
}

func versionText() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{GoVersion: runtime.Version()}
	}
	return formatVersion(node.Version(), info)
}

// formatVersion returns for example "weir v1.2.3 (commit 0123456789ab, go1.26.8
// linux/amd64)".
func formatVersion(version string, info *debug.BuildInfo) string {
	settings := make(map[string]string)
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	commit := "commit unknown"
	if revision := settings["vcs.revision"]; revision != "" {
		commit = "commit " + revision[:min(len(revision), 12)]
	}
	if settings["vcs.modified"] == "true" {
		commit += " with changes"
	}
	return fmt.Sprintf("weir %s (%s, %s %s/%s)", version, commit,
		info.GoVersion, runtime.GOOS, runtime.GOARCH)
}
