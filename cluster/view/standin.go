package view

import "slices"

// StandIn returns the life that grants from its copy of a partition while no view follows v: its owner has said farewell, and v names no standby. That is
// the Learner, if it is reported to have a complete copy, so that all nodes agree on it. It is the zero value for none.
func (v *View) StandIn(p int, plan Plan, farewells []Life, reports Reports) Life {
	part := &v.Partitions[p]
	if part.Standby != (Life{}) || !slices.Contains(farewells, part.Owner) {
		return Life{}
	}
	l := v.Learner(p, plan)
	if slices.Contains(farewells, l) || !reports.complete(v, p, l) {
		return Life{}
	}
	return l
}
