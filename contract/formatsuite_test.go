package contract

import (
	"path/filepath"
	"slices"
	"testing"
)

// assertedFiles are the optional format tests of the formats that we assert.
func assertedFiles() []string {
	var out []string
	for _, name := range Formats() {
		out = append(out, name+".json")
	}
	return out
}

func TestSuiteFormats(t *testing.T) {
	for _, d := range suiteDrafts {
		t.Run(d.dir, func(t *testing.T) {
			t.Parallel()
			runSuiteFiles(t, filepath.Join(d.dir, "optional", "format"), func(file string) bool {
				return slices.Contains(assertedFiles(), file)
			}, formatExceptions[d.draft], func(string) compileHooks { return compileHooks{draft: d.draft} })
		})
	}
}

// optionalFiles are the other optional tests that say something about us.
var optionalFiles = []string{"bignum.json", "ecmascript-regex.json", "float-overflow.json", "non-bmp-regex.json", "unknownKeyword.json", "id.json", "anchor.json", "no-schema.json", "refOfUnknownKeyword.json", "dynamicRef.json", "cross-draft.json", "dependencies-compatibility.json", "zeroTerminatedFloats.json"}

func TestSuiteOptional(t *testing.T) {
	remotes := suiteRemotes(t)
	for _, d := range suiteDrafts {
		t.Run(d.dir, func(t *testing.T) {
			t.Parallel()
			runSuiteFiles(t, filepath.Join(d.dir, "optional"), func(file string) bool {
				return slices.Contains(optionalFiles, file)
			}, optionalExceptions[d.draft], func(string) compileHooks {
				return compileHooks{documents: remotes, draft: d.draft, anyFormat: true}
			})
		})
	}
}
