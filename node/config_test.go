package node

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each testdata/*.yaml is a configuration; what is beside it in a .want file is
// every problem, one a line, or the effective settings when there is none.
func TestConfigurationFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			cfg, problems := Parse(text)
			for _, p := range problems {
				got.WriteString(p.String() + "\n")
			}
			if len(problems) == 0 {
				for _, s := range cfg.Effective() {
					if s.Line > 0 {
						got.WriteString(s.Path + " = " + s.Value + "\n")
					}
				}
			}
			want := strings.TrimSuffix(file, ".yaml") + ".want"
			if *update {
				if err := os.WriteFile(want, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			have, err := os.ReadFile(want)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(have, got.Bytes()) {
				t.Errorf("got:\n%swant:\n%s", got.Bytes(), have)
			}
		})
	}
}

// Every default that effective shows is a real setting.
func TestDefaultsNameSettings(t *testing.T) {
	for _, d := range defaults {
		var file bytes.Buffer
		indent := ""
		for _, part := range strings.Split(d.Path, ".") {
			file.WriteString(indent + part + ":")
			indent = "\n" + strings.Repeat(" ", len(indent)+1)
		}
		value := d.Value
		if strings.HasPrefix(value, "(") {
			continue
		}
		file.WriteString(" " + value + "\n")
		if _, problems := Parse(file.Bytes()); len(problems) > 0 {
			t.Errorf("%s: %s: %v", d.Path, file.Bytes(), problems)
		}
	}
}

func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.yaml")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(_ *testing.T, text []byte) {
		if len(text) > 16<<10 {
			return
		}
		cfg, problems := Parse(text)
		if len(problems) == 0 {
			cfg.Effective()
		}
	})
}
