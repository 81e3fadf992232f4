package main

import (
	"maps"
	"testing"

	"github.com/weirlimit/weir/node"
)

// A node tells its options under the names that flags have, and in the form that flags take.
func TestNodesTellOptionsAsFlagsTakeThem(t *testing.T) {
	flags := make(map[string]bool)
	for _, o := range options() {
		flags[o.name] = true
		for _, sample := range samples[o.name] {
			var opts, again node.Options
			if err := o.set(&opts, sample); err != nil {
				t.Fatal(err)
			}
			told := valueOf(opts, o.name)
			if o.name == "xds-headers" || o.name == "xds-metadata" {
				continue // their values are secrets
			}
			if err := o.set(&again, told.Text); err != nil {
				t.Errorf("--%s: %q is told as %q: %v", o.name, sample, told.Text, err)
			}
			if valueOf(again, o.name).Text != told.Text {
				t.Errorf("--%s: %q is told as %q, and that as %q", o.name, sample, told.Text, valueOf(again, o.name).Text)
			}
		}
	}
	told := make(map[string]bool)
	for _, v := range (node.Options{}).Values() {
		told[v.Name] = true
	}
	if !maps.Equal(flags, told) {
		t.Errorf("flags are %v, and a node tells %v", flags, told)
	}
}

func valueOf(o node.Options, name string) node.Value {
	for _, v := range o.Values() {
		if v.Name == name {
			return v
		}
	}
	return node.Value{}
}
