package cluster

import "testing"

// Goroutines that serve other nodes ask who is reached while the first view is adopted, before the router has it.
func TestReachedBeforeTheRouterHasAView(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		n := c.launch("a", 1)
		b := Life{ID: "b", Incarnation: 1}
		n.owners.otherMembers.byLife.Store(&map[Life]*otherMember{b: {member: Member{ID: "b", Incarnation: 1}}})
		defer n.owners.otherMembers.byLife.Store(new(map[Life]*otherMember))
		if n.router.View() != nil || n.owners.Reached(b) {
			t.Error("it reaches a member that its router does not know")
		}
	})
}
