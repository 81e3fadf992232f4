package helm

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// peer is a pod at the other end of a connection: one of the release's namespace, or of another one.
type peer struct {
	labels    map[string]string
	elsewhere bool
}

// Pods that the chart does not make.
var (
	shop = peer{labels: map[string]string{"app": "shop"}}
	dns  = peer{labels: map[string]string{"k8s-app": "kube-dns"}, elsewhere: true}
)

// selects reports whether a selector of a NetworkPolicy selects these labels. The chart's has no expressions.
func selects(t *testing.T, s *metav1.LabelSelector, labels map[string]string) bool {
	t.Helper()
	if len(s.MatchExpressions) > 0 {
		t.Fatalf("the test does not know expressions: %v", s)
	}
	return contains(labels, s.MatchLabels)
}

// permitsPeer reports whether the peers of a rule have p among them. Labels of namespaces are unknown, so that a selector with some
// selects none.
func permitsPeer(t *testing.T, peers []networkingv1.NetworkPolicyPeer, p peer) bool {
	t.Helper()
	return len(peers) == 0 || slices.ContainsFunc(peers, func(n networkingv1.NetworkPolicyPeer) bool {
		switch {
		case n.IPBlock != nil, n.NamespaceSelector == nil && p.elsewhere, n.NamespaceSelector != nil && !selects(t, n.NamespaceSelector, nil):
			return false
		case n.PodSelector == nil:
			return true
		}
		return selects(t, n.PodSelector, p.labels)
	})
}

// permitsPort reports whether the ports of a rule have one of the container that is asked.
func permitsPort(ports []networkingv1.NetworkPolicyPort, port corev1.ContainerPort) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(n networkingv1.NetworkPolicyPort) bool {
		if *n.Protocol != port.Protocol {
			return false
		}
		return n.Port == nil || n.Port.IntVal == port.ContainerPort || n.Port.StrVal != "" && n.Port.StrVal == port.Name
	})
}

// permitsEgress reports whether the pods of a policy may connect to a port of p.
func permitsEgress(t *testing.T, policy *networkingv1.NetworkPolicy, p peer, port corev1.ContainerPort) bool {
	t.Helper()
	return !slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) ||
		slices.ContainsFunc(policy.Spec.Egress, func(r networkingv1.NetworkPolicyEgressRule) bool {
			return permitsPeer(t, r.To, p) && permitsPort(r.Ports, port)
		})
}

// permitsIngress reports whether p may connect to a port of the pods of a policy.
func permitsIngress(t *testing.T, policy *networkingv1.NetworkPolicy, p peer, port corev1.ContainerPort) bool {
	t.Helper()
	return !slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) ||
		slices.ContainsFunc(policy.Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool {
			return permitsPeer(t, r.From, p) && permitsPort(r.Ports, port)
		})
}

// component returns the StatefulSet of a component and the one policy of its pods; the StatefulSet is nil if there is none.
func component(t *testing.T, all objects, name string) (set *appsv1.StatefulSet, policy *networkingv1.NetworkPolicy) {
	t.Helper()
	for _, o := range all {
		if s, ok := o.(*appsv1.StatefulSet); ok && s.Labels["app.kubernetes.io/component"] == name {
			set = s
		}
	}
	if set == nil {
		return nil, nil
	}
	for key, o := range all {
		p, ok := o.(*networkingv1.NetworkPolicy)
		switch {
		case !ok || !selects(t, &p.Spec.PodSelector, set.Spec.Template.Labels):
		case policy != nil:
			t.Fatalf("%s is another policy of the pods of %s", key, set.Name)
		default:
			policy = p
		}
	}
	if policy == nil {
		t.Fatalf("%s has no policy", set.Name)
	}
	return set, policy
}

// portOf returns a port of the container of a StatefulSet.
func portOf(t *testing.T, s *appsv1.StatefulSet, name string) corev1.ContainerPort {
	t.Helper()
	for _, p := range s.Spec.Template.Spec.Containers[0].Ports {
		if p.Name == name {
			return tcp(p)
		}
	}
	t.Fatalf("%s has no port %s", s.Name, name)
	return corev1.ContainerPort{}
}

// tcp returns a port with the protocol that Kubernetes takes if there is none.
func tcp(p corev1.ContainerPort) corev1.ContainerPort {
	if p.Protocol == "" {
		p.Protocol = corev1.ProtocolTCP
	}
	return p
}

// The policy of nodes lets them ask each other, etcd at each of its endpoints and DNS, and nothing else, unless egress is not
// restricted. Nodes alone reach the bundled etcd, whose members reach each other.
func TestNetworkPolicies(t *testing.T) {
	t.Parallel()
	restricted, open, bundled := 0, 0, 0
	for name, values := range matrix {
		if name == "no policies" {
			continue
		}
		all := render(t, values)
		nodes, policy := component(t, all, "node")
		etcd, etcdPolicy := component(t, all, "etcd")
		if slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
			restricted++
			checkEgress(t, name, policy, nodes, etcd)
		} else {
			open++
		}
		if etcd != nil {
			bundled++
			checkIngressOfEtcd(t, name, etcdPolicy, nodes, etcd)
		}
	}
	if restricted < 20 || open == 0 || bundled == 0 {
		t.Errorf("egress is restricted with %d values and not with %d, and %d have the bundled etcd", restricted, open, bundled)
	}
}

// checkEgress checks whom nodes may ask.
func checkEgress(t *testing.T, values string, policy *networkingv1.NetworkPolicy, nodes, etcd *appsv1.StatefulSet) {
	t.Helper()
	expect := func(what string, p peer, port corev1.ContainerPort, want bool) {
		t.Helper()
		if permitsEgress(t, policy, p, port) != want {
			t.Errorf("%s: nodes may reach %s at port %d/%s: %t, want %t", values, what, port.ContainerPort, port.Protocol, !want, want)
		}
	}
	for _, port := range []string{"grpc", "admin"} {
		expect("nodes", peer{labels: nodes.Spec.Template.Labels}, portOf(t, nodes, port), true)
	}
	for _, protocol := range []corev1.Protocol{corev1.ProtocolUDP, corev1.ProtocolTCP} {
		expect("DNS", dns, corev1.ContainerPort{ContainerPort: 53, Protocol: protocol}, true)
	}
	to := peer{elsewhere: true}
	if etcd != nil {
		to = peer{labels: etcd.Spec.Template.Labels}
	}
	for endpoint := range strings.SplitSeq(newPod(nodes, 0, substitution{}).variable("WEIR_ETCD"), ",") {
		port, err := strconv.Atoi(endpoint[strings.LastIndexByte(endpoint, ':')+1:])
		if err != nil {
			t.Fatalf("%s: %v", values, err)
		}
		expect("etcd", to, tcp(corev1.ContainerPort{ContainerPort: int32(port)}), true)
	}
	for _, p := range []peer{shop, {elsewhere: true}} {
		expect("other programs", p, tcp(corev1.ContainerPort{ContainerPort: 443}), false)
	}
}

// checkIngressOfEtcd checks which pods may ask the bundled etcd.
func checkIngressOfEtcd(t *testing.T, values string, policy *networkingv1.NetworkPolicy, nodes, etcd *appsv1.StatefulSet) {
	t.Helper()
	node, member := peer{labels: nodes.Spec.Template.Labels}, peer{labels: etcd.Spec.Template.Labels}
	elsewhere := node
	elsewhere.elsewhere = true
	if !permitsIngress(t, policy, node, portOf(t, etcd, "client")) {
		t.Errorf("%s: nodes do not reach etcd", values)
	}
	if !permitsIngress(t, policy, member, portOf(t, etcd, "peer")) {
		t.Errorf("%s: members of etcd do not reach each other", values)
	}
	other := maps.Clone(node.labels)
	other["app.kubernetes.io/instance"] = "another release"
	for _, port := range etcd.Spec.Template.Spec.Containers[0].Ports {
		for _, p := range []peer{shop, dns, elsewhere, {labels: other}} {
			if permitsIngress(t, policy, p, tcp(port)) {
				t.Errorf("%s: %v reaches the port %s of etcd", values, p, port.Name)
			}
		}
	}
	if permitsIngress(t, policy, node, portOf(t, etcd, "peer")) {
		t.Errorf("%s: nodes reach the port by which members of etcd reach each other", values)
	}
}
