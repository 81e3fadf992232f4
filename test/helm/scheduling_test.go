package helm

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Nodes keep away from each other as the values say.
func TestScheduling(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct{ required, preferred, spread int }{
		"defaults":     {preferred: 1, spread: 1},
		"five nodes":   {required: 1, spread: 1},
		"no affinity":  {},
		"own affinity": {spread: 1},
	} {
		got := want
		s := get[*appsv1.StatefulSet](t, render(t, matrix[name]), "StatefulSet/"+full)
		required, preferred := antiAffinity(s)
		got.required, got.preferred, got.spread = len(required), len(preferred), len(s.Spec.Template.Spec.TopologySpreadConstraints)
		if got != want {
			t.Errorf("%s: the pods have %+v, want %+v", name, got, want)
		}
	}
}

// antiAffinity returns the terms that a pod must and should keep to.
func antiAffinity(s *appsv1.StatefulSet) (required, preferred []corev1.PodAffinityTerm) {
	affinity := s.Spec.Template.Spec.Affinity
	if affinity == nil || affinity.PodAntiAffinity == nil {
		return nil, nil
	}
	for _, w := range affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		preferred = append(preferred, w.PodAffinityTerm)
	}
	return affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, preferred
}

// checkScheduling fails the test if a selector by which the pods keep away from each other matches other pods than these.
func checkScheduling(t *testing.T, all objects, s *appsv1.StatefulSet) {
	t.Helper()
	required, preferred := antiAffinity(s)
	for _, term := range append(required, preferred...) {
		checkMatches(t, all, s, "anti-affinity", term.LabelSelector)
	}
	for _, c := range s.Spec.Template.Spec.TopologySpreadConstraints {
		checkMatches(t, all, s, "topology spread", c.LabelSelector)
	}
}

// checkMatches fails the test if the selector does not match the pods of s, and those only.
func checkMatches(t *testing.T, all objects, s *appsv1.StatefulSet, what string, by *metav1.LabelSelector) {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(by)
	if err != nil {
		t.Fatal(err)
	}
	for key, o := range all {
		other, ok := o.(*appsv1.StatefulSet)
		if !ok {
			continue
		}
		if got, want := selector.Matches(labels.Set(other.Spec.Template.Labels)), other == s; got != want {
			t.Errorf("the %s of the pods of %s is by %v: it matches the pods of %s: %t, want %t", what, s.Name, selector, key, got, want)
		}
	}
}
