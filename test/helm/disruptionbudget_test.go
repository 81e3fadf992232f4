package helm

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
)

// Kubernetes drains machines of one node at a time, and of one member of etcd, unless the values say otherwise: the standby of a
// counter is another node.
func TestDisruptionBudget(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"defaults", "five nodes", "autoscaling", "cert-manager"} {
		o := render(t, matrix[name])
		for _, set := range []string{full, full + "-etcd"} {
			budget := get[*policyv1.PodDisruptionBudget](t, o, "PodDisruptionBudget/"+set).Spec
			if budget.MinAvailable != nil || budget.MaxUnavailable == nil || budget.MaxUnavailable.String() != "1" {
				t.Errorf("%s: of %s, %v may be away and %v must be there, want 1 away at most", name, set, budget.MaxUnavailable, budget.MinAvailable)
			}
			if labels := get[*appsv1.StatefulSet](t, o, "StatefulSet/"+set).Spec.Template.Labels; !contains(labels, budget.Selector.MatchLabels) {
				t.Errorf("%s: the budget of %s selects %v, and its pods have %v", name, set, budget.Selector, labels)
			}
		}
	}
	if render(t, matrix["no affinity"])["PodDisruptionBudget/"+full] != nil {
		t.Error("there is a budget, and the values say that there is to be none")
	}
}
