package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/test/bench/measure"
)

// store is a file of results.
type store struct {
	path  string
	Parts map[string]*measured `json:"parts"`
}

// measured is what a part led to.
type measured struct {
	When     string   `json:"when"`            // day
	Commit   string   `json:"commit"`          // that was measured, with a plus if there were changes
	Short    bool     `json:"short,omitempty"` // it was a trial
	Seconds  int      `json:"seconds"`         // that it took
	Machine  machine  `json:"machine"`
	Commands []string `json:"commands"`
	// Values by name and unit; of what was measured several times, all of them.
	Values measure.Results `json:"values"`
}

// machine says where something was measured.
type machine struct {
	CPU   string `json:"cpu"`
	Cores int    `json:"cores"`
	OS    string `json:"os"`
	Go    string `json:"go"`
}

// loadStore reads a file, which may be missing.
func loadStore(path string) (*store, error) {
	s := &store{path: path, Parts: make(map[string]*measured)}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	return s, json.Unmarshal(text, s)
}

// save writes the file, or leaves the old one.
func (s *store) save() error {
	text, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o755); err != nil {
		return err
	}
	next := s.path + ".new"
	if err := os.WriteFile(next, append(inline(text), '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(next, s.path)
}

var numbers = regexp.MustCompile(`\[[\s\d.,eE+-]*\]`)

// inline puts lists of numbers on one line each.
func inline(text []byte) []byte {
	return numbers.ReplaceAllFunc(text, func(list []byte) []byte {
		return bytes.Join(bytes.Fields(list), nil)
	})
}

func newMeasured(commit string, short bool) *measured {
	return &measured{
		When: time.Now().UTC().Format(time.DateOnly), Commit: commit, Short: short, Machine: thisMachine(), Values: make(measure.Results),
	}
}

// keep adds the results of a step.
func (m *measured) keep(st step, r measure.Results) {
	if command := st.String(); !slices.Contains(m.Commands, command) {
		m.Commands = append(m.Commands, command)
	}
	m.Values.Merge(r)
}

func thisMachine() machine {
	return machine{CPU: cpuModel(), Cores: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version()}
}

// cpuModel is what Linux says, empty elsewhere.
func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	_, model, _ := strings.Cut(string(text), "model name")
	model, _, _ = strings.Cut(model, "\n")
	return strings.TrimSpace(strings.TrimLeft(model, "\t: "))
}
