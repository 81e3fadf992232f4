package dev

import (
	"fmt"
	"strings"
)

// Cut divides a part from all others, or two or more from each other; Heal undoes it, of all parts if none is named.
func (c *Cluster) Cut(names ...string) (string, error) {
	pairs, err := c.pairs(names)
	if err != nil {
		return "", err
	}
	defer c.changed()
	for _, p := range pairs {
		c.proxy.Set(p[0], p[1], true)
	}
	if len(names) == 1 {
		return names[0] + " is cut from all others; clients still reach it", nil
	}
	return strings.Join(names, ", ") + " are cut from each other", nil
}

// Heal is the opposite of Cut.
func (c *Cluster) Heal(names ...string) (string, error) {
	var pairs [][2]string
	var err error
	if len(names) == 0 {
		for _, p := range c.parts() {
			more, _ := c.pairs([]string{p.name}) // it is there
			pairs = append(pairs, more...)
		}
	} else if pairs, err = c.pairs(names); err != nil {
		return "", err
	}
	defer c.changed()
	for _, p := range pairs {
		c.proxy.Set(p[0], p[1], false)
	}
	if len(names) == 0 {
		return "nothing is cut any more", nil
	}
	return strings.Join(names, ", ") + " healed", nil
}

// pairs are those of the named parts; of one alone, with all others.
func (c *Cluster) pairs(names []string) (pairs [][2]string, err error) {
	for _, name := range names {
		if _, err := c.find(name); err != nil {
			return nil, err
		}
	}
	if len(names) == 1 {
		for _, p := range c.parts() {
			if p.name != names[0] {
				pairs = append(pairs, pair(p.name, names[0]))
			}
		}
		return pairs, nil
	}
	for i, a := range names {
		for _, b := range names[:i] {
			if a == b {
				return nil, fmt.Errorf("%s is named twice", a)
			}
			pairs = append(pairs, pair(a, b))
		}
	}
	return pairs, nil
}

func (c *Cluster) cutFrom(p *process) (from []string) {
	for _, other := range c.parts() {
		if other != p && c.proxy.IsCut(p.name, other.name) {
			from = append(from, other.name)
		}
	}
	return from
}
