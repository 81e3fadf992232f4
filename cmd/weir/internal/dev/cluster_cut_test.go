package dev

import (
	"strings"
	"testing"
)

// newParts returns a cluster whose processes are said to run.
func newParts(t *testing.T) *Cluster {
	t.Helper()
	c := &Cluster{told: make(chan struct{}), proxy: startProxy(t, nil)}
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		c.nodes = append(c.nodes, &process{name: name, address: "of " + name, state: Runs})
	}
	c.etcd = &process{name: Etcd, state: Runs}
	return c
}

// Commands are for a node that runs and is cut from as few parts as any.
func TestAddressIsOfANodeThatIsNotCut(t *testing.T) {
	c := newParts(t)
	want := func(node string) {
		t.Helper()
		if got := c.Address(); got != "of "+node {
			t.Errorf("the address %s, want that of %s", got, node)
		}
	}
	cut := func(names ...string) {
		t.Helper()
		if _, err := c.Cut(names...); err != nil {
			t.Fatal(err)
		}
	}
	want("node-1")
	cut("node-1")
	want("node-2")
	c.nodes[1].state = Paused
	want("node-3")
	if _, err := c.Heal(); err != nil {
		t.Fatal(err)
	}
	want("node-1")
	cut("node-1", "node-2") // the third one is cut from none
	want("node-3")
}

func TestCutAndHealNameParts(t *testing.T) {
	c := newParts(t)
	if _, err := c.Cut("node-1", "node-2", "node-1"); err == nil || !strings.Contains(err.Error(), "node-1 is named twice") {
		t.Error(err)
	}
	if text, err := c.Cut("node-2", Etcd); err != nil || text != "node-2, etcd are cut from each other" {
		t.Error(text, err)
	}
	if from := c.cutFrom(c.nodes[1]); len(from) != 1 || from[0] != Etcd {
		t.Errorf("node-2 is cut from %v", from)
	}
	if _, err := c.Cut("node-3"); err != nil || len(c.cutFrom(c.nodes[2])) != 3 {
		t.Errorf("node-3 is cut from %v, %v", c.cutFrom(c.nodes[2]), err)
	}
	if _, err := c.Heal("node-3"); err != nil || len(c.cutFrom(c.nodes[2])) != 0 || len(c.cutFrom(c.nodes[1])) != 1 {
		t.Errorf("after a heal of node-3 it is cut from %v, and node-2 from %v, %v", c.cutFrom(c.nodes[2]), c.cutFrom(c.nodes[1]), err)
	}
}
