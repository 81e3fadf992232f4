package rules

import (
	"fmt"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimit/weir/rules/internal/problem"
)

// key declares a field once: how it is read, within which bounds, and what the reference says.
type key[T any] struct {
	Field
	required bool
	counts   bool // it says how to count, which an unlimited rule does not
	read     func(d *decoder, n *yaml.Node, at problem.Path, into *T)
}

func listed[T any](keys []key[T]) (all []Field) {
	for _, k := range keys {
		f := k.Field
		switch {
		case k.required && k.counts:
			f.Default = "required, unless `unlimited`"
		case k.required:
			f.Default = "required"
		}
		all = append(all, f)
	}
	return all
}

// readers returns what the decoder needs of keys.
func readers[T any](keys []key[T]) (all []keyReader[T]) {
	for _, k := range keys {
		all = append(all, keyReader[T]{k.Key, k.required, k.read})
	}
	return all
}

// wholes is a key of a whole number from f.Least to f.Most.
func wholes[T any](f Field, set func(into *T, value int64)) key[T] {
	if f.Bounds = fmt.Sprintf("%d to %d", f.Least, f.Most) + f.Bounds; f.Type == "" {
		f.Type = "number"
	}
	return key[T]{Field: f, read: func(d *decoder, n *yaml.Node, at problem.Path, into *T) { set(into, d.whole(n, at, f.Least, f.Most)) }}
}

// percents is a key of a percentage from f.Least to f.Most.
func percents[T any](f Field, set func(into *T, value int64)) key[T] {
	f.Bounds = fmt.Sprintf("`%d%%` to `%d%%`", f.Least, f.Most) + f.Bounds
	return key[T]{Field: f, required: true, read: func(d *decoder, n *yaml.Node, at problem.Path, into *T) { set(into, d.percent(n, at, f.Least, f.Most)) }}
}

// mustHave makes a key required.
func mustHave[T any](k key[T]) key[T] {
	k.required = true
	return k
}

// counting marks a key that says how to count.
func counting[T any](k key[T]) key[T] {
	k.counts = true
	return k
}
