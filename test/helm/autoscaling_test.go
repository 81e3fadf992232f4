package helm

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
)

// The autoscaler removes one pod at a time, and the next one only once the grace period of the last one has passed: a pod hands its
// counters over to nodes that stay.
func TestScaleDown(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"autoscaling", "cert-manager"} {
		o := render(t, matrix[name])
		down := get[*autoscalingv2.HorizontalPodAutoscaler](t, o, "HorizontalPodAutoscaler/"+full).Spec.Behavior.ScaleDown
		if down == nil || len(down.Policies) != 1 {
			t.Fatalf("%s: scales down by %v, want one policy: of several, Kubernetes takes the one that removes most", name, down)
		}
		policy := down.Policies[0]
		if policy.Type != autoscalingv2.PodsScalingPolicy || policy.Value != 1 {
			t.Errorf("%s: removes %d %s at a time, want 1 pod", name, policy.Value, policy.Type)
		}
		grace := seconds(*get[*appsv1.StatefulSet](t, o, "StatefulSet/"+full).Spec.Template.Spec.TerminationGracePeriodSeconds)
		if period := seconds(policy.PeriodSeconds); period <= grace {
			t.Errorf("%s: removes the next pod after %v, while the last one may take %v to end", name, period, grace)
		}
		if window := down.StabilizationWindowSeconds; window == nil {
			t.Errorf("%s: the stabilisation window is that of Kubernetes, want 10m", name)
		} else if seconds(*window) != 10*time.Minute {
			t.Errorf("%s: the stabilisation window is %v, want 10m as docs/kubernetes.md says", name, seconds(*window))
		}
	}
}

// The autoscaler adds pods to the nodes' StatefulSet by how much of the processors they use, which is a share of what their containers
// request.
func TestScalesByProcessor(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"autoscaling", "cert-manager"} {
		o := render(t, matrix[name])
		spec := get[*autoscalingv2.HorizontalPodAutoscaler](t, o, "HorizontalPodAutoscaler/"+full).Spec
		if target := spec.ScaleTargetRef; target.APIVersion != "apps/v1" || target.Kind != "StatefulSet" || target.Name != full {
			t.Errorf("%s: scales %v", name, target)
		}
		if len(spec.Metrics) != 1 || spec.Metrics[0].Type != autoscalingv2.ResourceMetricSourceType || spec.Metrics[0].Resource == nil {
			t.Fatalf("%s: scales by %v, want the processor alone", name, spec.Metrics)
		}
		resource := spec.Metrics[0].Resource
		if share := resource.Target.AverageUtilization; resource.Name != corev1.ResourceCPU || resource.Target.Type != autoscalingv2.UtilizationMetricType || share == nil || *share < 1 || *share > 90 {
			t.Errorf("%s: scales by %v", name, resource)
		}
		for _, c := range get[*appsv1.StatefulSet](t, o, "StatefulSet/"+full).Spec.Template.Spec.Containers {
			if c.Resources.Requests.Cpu().IsZero() {
				t.Errorf("%s: the container %s requests no processor, of which there could be a share", name, c.Name)
			}
		}
		if least := spec.MinReplicas; least == nil || *least < 3 || spec.MaxReplicas <= *least {
			t.Errorf("%s: scales from %v to %d", name, least, spec.MaxReplicas)
		}
	}
}
