package view

import (
	"slices"

	"github.com/weirlimit/weir/ring"
)

// Place is where the ring wants a partition: ids of nodes.
type Place struct {
	Owner   string
	Standby string // "" if there is only one node
}

// names reports whether the ring wants a partition at a node.
func (p Place) names(id string) bool { return p.Owner == id || p.Standby == id }

// Plan says by partition where the ring wants it.
type Plan []Place

// CachedPlan is the plan for some members. The zero value is that for none.
type CachedPlan struct {
	ids  []string
	Plan Plan
}

// For returns the plan for the members of a view that stay, which is p if the same do. It takes milliseconds to compute another one. The error is
// that of ring.Build.
func (p CachedPlan) For(params ring.Params, v *View) (CachedPlan, error) {
	ids := v.staying()
	if p.Plan != nil && slices.Equal(p.ids, ids) {
		return p, nil
	}
	plan, err := PlanOf(params, v)
	return CachedPlan{ids, plan}, err
}

// PlanOf returns the plan for the members of a view that stay. It is a pure function of both. The error is that of ring.Build.
func PlanOf(params ring.Params, v *View) (Plan, error) {
	ids := v.staying()
	r, err := ring.Build(params, ids)
	if err != nil {
		return nil, err
	}
	plan := make(Plan, r.Partitions())
	for p := range plan {
		owner, standby := r.Owner(uint32(p)), r.Standby(uint32(p))
		plan[p].Owner = ids[owner]
		if standby != owner {
			plan[p].Standby = ids[standby]
		}
	}
	return plan, nil
}

// Learner returns which node the owner of a partition, which the plan wants at that place, feeds apart from the standby: the plan's owner first, then the plan's
// standby. It returns the zero value if both have a role already, or are no members.
func (v *View) Learner(p int, place Place) Life {
	part := &v.Partitions[p]
	for _, id := range []string{place.Owner, place.Standby} {
		if l, member := v.Current(id); member && l != part.Owner && l != part.Standby {
			return l
		}
	}
	return Life{}
}

// Follows reports whether a partition is where the plan wants it. If the plan has no standby, any one will do.
func (v *View) Follows(p int, plan Plan) bool {
	part := &v.Partitions[p]
	return part.Owner.ID == plan[p].Owner && (plan[p].Standby == "" || part.Standby.ID == plan[p].Standby)
}
