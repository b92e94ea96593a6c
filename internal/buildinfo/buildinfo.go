// Package buildinfo names the running build.
package buildinfo

import (
	"runtime/debug"
	"strings"
)

// Version is the version of Headgate that this source belongs to.
const Version = "0.1.0-dev"

// String returns the version and, where the build knows it, the commit.
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Version
	}
	var rev, dirty string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			rev = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "+changes"
			}
		}
	}
	return strings.TrimSpace(Version + " " + rev + dirty)
}
