package rules

import (
	"slices"
	"testing"
)

func TestDiff(t *testing.T) {
	old := parse(t, `
domain: d
rules:
  - {id: same, when: {a: [x, y]}, per: [u, v], limits: [{limit: 1, window: 60s}]}
  - {id: gone, limits: [{limit: 1, window: 1s}]}
  - {id: changed, per: [u], limits: [{limit: 1, window: 1s}]}
  - {id: moved, limits: [{limit: 1, window: 1s}]}
`)
	latest := parse(t, `
domain: d
rules:
  - {id: added, limits: [{limit: 2, window: 1s}]}
  - {id: changed, when: {a: x}, per: [u], limits: [{limit: 2, window: 1s}], enabled: false}
  - {id: same, per: [v, u], when: {a: [y, x]}, limits: [{window: 1m, limit: 1, algorithm: sliding_window}], enabled: true}
---
domain: e
rules: [{id: moved, limits: [{limit: 1, window: 1s}]}]
`)
	c := Diff(old, latest)
	names := func(specs []NamedSpec) (list []string) {
		for _, s := range specs {
			list = append(list, s.Domain+"/"+s.Spec.ID)
		}
		return list
	}
	if got, want := names(c.Added), []string{"d/added", "e/moved"}; !slices.Equal(got, want) {
		t.Errorf("added %v, want %v", got, want)
	}
	if got, want := names(c.Removed), []string{"d/gone", "d/moved"}; !slices.Equal(got, want) {
		t.Errorf("removed %v, want %v", got, want)
	}
	if len(c.Changed) != 1 || c.Unchanged != 1 {
		t.Fatalf("%d changed, %d not: %v", len(c.Changed), c.Unchanged, c.Changed)
	}
	got := c.Changed[0]
	if want := []string{"when", "limits", "enabled"}; got.Domain != "d" || !slices.Equal(got.Fields, want) {
		t.Errorf("changed %s, fields %v, want %v", got.Domain, got.Fields, want)
	}
	if got.Old.Limits[0].Limit != 1 || got.New.Limits[0].Limit != 2 {
		t.Errorf("changed from %v to %v", got.Old, got.New)
	}
	if same := Diff(old, old); len(same.Added)+len(same.Changed)+len(same.Removed) > 0 || same.Unchanged != 4 {
		t.Errorf("a set differs from itself: %v", same)
	}
	if all := Diff(latest, &Set{}); len(all.Removed) != 4 {
		t.Errorf("%d removed", len(all.Removed))
	}
}
