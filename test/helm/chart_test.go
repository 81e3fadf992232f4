package helm

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/lint"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/weirlimit/weir/test/process"
)

// matrix has values that the chart is rendered with.
var matrix = map[string]string{
	"defaults":         `{}`,
	"one node":         `{replicas: 1, etcd: {bundled: {replicas: 1}}, persistence: {enabled: false}}`,
	"five nodes":       `{replicas: 5, antiAffinity: hard, topologySpread: {whenUnsatisfiable: DoNotSchedule}}`,
	"no affinity":      `{antiAffinity: none, topologySpread: {enabled: false}, podDisruptionBudget: {enabled: false}}`,
	"own affinity":     `{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}, nodeSelector: {a: b}, tolerations: [{key: a, operator: Exists}], priorityClassName: high, imagePullSecrets: [{name: pull}]}`,
	"external etcd":    `{etcd: {bundled: {enabled: false}, endpoints: ["etcd-1:2379", "10.0.0.2:2379", "[fd00::1]:2479"]}}`,
	"etcd with TLS":    `{etcd: {bundled: {enabled: false}, endpoints: ["etcd-1:2379"], tls: {enabled: true, secretName: etcd}, auth: {user: weir, existingSecret: etcd-user}}}`,
	"etcd with a CA":   `{etcd: {bundled: {enabled: false}, endpoints: ["etcd-1:2379"], tls: {enabled: true, secretName: etcd, clientCertificate: false}}, networkPolicy: {egress: false}}`,
	"rules in files":   `{rules: {source: configMap, files: {shop.yaml: "domain: shop\nrules: []\n"}}}`,
	"rules elsewhere":  `{rules: {source: configMap, existingConfigMap: mine}}`,
	"TLS by a Secret":  `{tls: {mode: secret, secretName: certs}, cluster: Shop_1}`,
	"TLS by tokens":    `{tls: {mode: secret, secretName: certs, clientAuth: none, extraHosts: [weir.example.com]}}`,
	"cert-manager":     `{tls: {mode: certManager}, autoscaling: {enabled: true}}`,
	"own issuer":       `{tls: {mode: certManager, certManager: {issuerRef: {name: ca, kind: ClusterIssuer}}}}`,
	"csi":              `{tls: {mode: csi, certManager: {issuerRef: {name: ca, kind: ClusterIssuer}}}}`,
	"autoscaling":      `{autoscaling: {enabled: true, minReplicas: 4, maxReplicas: 12}}`,
	"monitoring":       `{metrics: {serviceMonitor: {enabled: true, labels: {release: prometheus}, authorization: {type: Bearer, credentials: {name: weir-metrics, key: token}}, tlsConfig: {insecureSkipVerify: true}}}, tls: {mode: secret, secretName: certs}}`,
	"alerts":           `{metrics: {prometheusRule: {enabled: true, labels: {release: prometheus}}}}`,
	"policies":         `{networkPolicy: {clients: [{podSelector: {matchLabels: {app: shop}}}], admins: [{namespaceSelector: {matchLabels: {team: ops}}}]}}`,
	"rules by xDS":     `{options: {xds-server: "eg:18001", trace-endpoint: "http://otel:4317"}, networkPolicy: {extraEgress: [{ports: [{port: 18001, protocol: TCP}, {port: 4317, protocol: TCP}]}]}}`,
	"a port for Envoy": `{options: {rls-listen: "0.0.0.0:8081", rls-cert: /c/tls.crt, rls-key: /c/tls.key}}`,
	"no policies":      `{networkPolicy: {enabled: false}, serviceAccount: {create: false, name: mine}, service: {type: LoadBalancer, annotations: {a: b}}}`,
	"options":          `{options: {peer-timeout: 50ms, retry-jitter: 5%, forget-denials: true, trusted-proxies: [10.0.0.0/8, 127.0.0.1/32], rls-near-limit: 0.9, log-level: debug}, extraEnv: [{name: GOMAXPROCS, value: "2"}], podAnnotations: {a: b}, podLabels: {c: d}}`,
	"ports":            `{ports: {grpc: 19090, http: 18080, admin: 19100}, counterMemory: 512MiB, fullnameOverride: limiter, image: {digest: "sha256:` + strings.Repeat("a", 64) + `"}}`,
	"long names":       `{fullnameOverride: ` + strings.Repeat("a", 60) + `, tls: {mode: certManager}}`,
}

func TestLint(t *testing.T) {
	t.Parallel()
	version, err := parseKubeVersion("v1.30.0")
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range matrix {
		for _, m := range lint.AllWithKubeVersion(chartDir, parse(t, values), namespace, &version).Messages {
			if m.Severity > 1 { // more than a hint, such as that there is no icon
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

// Each object has only fields that Kubernetes knows, and refers only to what is there, with all values. The options of the nodes are
// those of weir serve.
func TestMatrix(t *testing.T) {
	t.Parallel()
	for name, values := range matrix {
		t.Run(name, func(t *testing.T) {
			all := render(t, values)
			for key, o := range all {
				for _, problem := range validation.IsDNS1123Subdomain(o.GetName()) {
					t.Errorf("%s: %s", key, problem)
				}
				if o.GetNamespace() != namespace {
					t.Errorf("%s is in the namespace %q", key, o.GetNamespace())
				}
				for label, value := range o.GetLabels() {
					for _, problem := range append(validation.IsQualifiedName(label), validation.IsValidLabelValue(value)...) {
						t.Errorf("%s: label %s: %s: %s", key, label, value, problem)
					}
				}
				if s, ok := o.(*appsv1.StatefulSet); ok {
					checkStatefulSet(t, all, s)
					checkScheduling(t, all, s)
				}
			}
			for key, o := range all {
				checkSelectors(t, all, key, o)
			}
		})
	}
}

func checkStatefulSet(t *testing.T, all objects, s *appsv1.StatefulSet) {
	t.Helper()
	get[*corev1.Service](t, all, "Service/"+s.Spec.ServiceName)
	c := s.Spec.Template.Spec.Containers[0]
	volumes := map[string]bool{}
	for _, v := range s.Spec.Template.Spec.Volumes {
		volumes[v.Name] = true
		if v.ConfigMap != nil && v.ConfigMap.Name != "mine" {
			get[*corev1.ConfigMap](t, all, "ConfigMap/"+v.ConfigMap.Name)
		}
	}
	for _, v := range s.Spec.VolumeClaimTemplates {
		volumes[v.Name] = true
	}
	for _, m := range c.VolumeMounts {
		if !volumes[m.Name] {
			t.Errorf("%s mounts %s, which is no volume", s.Name, m.Name)
		}
		delete(volumes, m.Name)
	}
	if len(volumes) > 0 {
		t.Errorf("%s has volumes that it does not mount: %v", s.Name, volumes)
	}
	ports := map[string]bool{}
	for _, p := range c.Ports {
		ports[p.Name] = true
	}
	for _, p := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if p == nil || p.HTTPGet == nil || !ports[p.HTTPGet.Port.StrVal] {
			t.Errorf("%s has a probe of no port: %v", s.Name, p)
		}
	}
	if c.Args[0] == "serve" {
		checkOptions(t, s)
	}
}

// checkOptions has weir itself read the options of a node.
func checkOptions(t *testing.T, s *appsv1.StatefulSet) {
	t.Helper()
	p := newPod(s, 0, substitution{})
	cmd := exec.CommandContext(t.Context(), process.Binary(t), "config", "check")
	cmd.Env = p.env
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "unknown") {
		t.Errorf("weir config check: %v\n%s\nwith %v", err, out, p.env)
	}
	for _, v := range p.env {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "WEIR_") && !strings.Contains(string(out), option(name)) {
			t.Errorf("%s is no option:\n%s", name, out)
		}
	}
}

func option(variable string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(variable, "WEIR_")), "_", "-")
}

// checkSelectors fails the test if an object selects no pods.
func checkSelectors(t *testing.T, all objects, key string, o any) {
	t.Helper()
	var selectors []map[string]string
	switch o := o.(type) {
	case *corev1.Service:
		selectors = append(selectors, o.Spec.Selector)
	case *policyv1.PodDisruptionBudget:
		selectors = append(selectors, o.Spec.Selector.MatchLabels)
	case *appsv1.StatefulSet:
		selectors = append(selectors, o.Spec.Selector.MatchLabels)
	case *networkingv1.NetworkPolicy:
		selectors = append(selectors, o.Spec.PodSelector.MatchLabels)
		checkNamedPorts(t, all, key, o)
	case *monitoringv1.ServiceMonitor:
		checkServiceMonitor(t, all, key, o)
	case *autoscalingv2.HorizontalPodAutoscaler:
		if get[*appsv1.StatefulSet](t, all, "StatefulSet/"+o.Spec.ScaleTargetRef.Name).Spec.Replicas != nil {
			t.Error("the StatefulSet has replicas, which each upgrade would set back")
		}
	}
	for _, selector := range selectors {
		matches := 0
		for _, other := range all {
			if s, ok := other.(*appsv1.StatefulSet); ok && contains(s.Spec.Template.Labels, selector) {
				matches++
			}
		}
		if matches != 1 {
			t.Errorf("%s selects the pods of %d StatefulSets: %v", key, matches, selector)
		}
	}
}

// checkServiceMonitor fails the test if a monitor does not select one Service of the chart that has its ports.
func checkServiceMonitor(t *testing.T, all objects, key string, m *monitoringv1.ServiceMonitor) {
	t.Helper()
	if n := m.Spec.NamespaceSelector; n.Any || len(n.MatchNames) > 0 || len(m.Spec.Selector.MatchExpressions) > 0 || len(m.Spec.Endpoints) == 0 {
		t.Errorf("%s selects namespaces %v, Services by %v and %d ports", key, n, m.Spec.Selector, len(m.Spec.Endpoints))
	}
	matches := 0
	for _, other := range all {
		s, ok := other.(*corev1.Service)
		if !ok || !contains(s.Labels, m.Spec.Selector.MatchLabels) {
			continue
		}
		matches++
		for _, e := range m.Spec.Endpoints {
			if !slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return e.Port != "" && p.Name == e.Port }) {
				t.Errorf("%s scrapes the port %q, and the Service %s has %v", key, e.Port, s.Name, s.Spec.Ports)
			}
		}
	}
	if matches != 1 {
		t.Errorf("%s selects %d Services by %v, and each pod is to be scraped once", key, matches, m.Spec.Selector.MatchLabels)
	}
}

// checkNamedPorts fails the test if a policy permits a port by a name that the pods of the policy do not have.
func checkNamedPorts(t *testing.T, all objects, key string, n *networkingv1.NetworkPolicy) {
	t.Helper()
	for _, other := range all {
		s, ok := other.(*appsv1.StatefulSet)
		if !ok || !contains(s.Spec.Template.Labels, n.Spec.PodSelector.MatchLabels) {
			continue
		}
		for _, rule := range n.Spec.Ingress {
			for _, port := range rule.Ports {
				if port.Port != nil && port.Port.StrVal != "" && !slices.ContainsFunc(s.Spec.Template.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool {
					return p.Name == port.Port.StrVal
				}) {
					t.Errorf("%s permits the port %s, which %s does not have", key, port.Port.StrVal, s.Name)
				}
			}
		}
	}
}

func contains(labels, selector map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// What cannot work is refused, and the message names the value.
func TestRefusedValues(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		`{replica: 3}`:                        "replica",
		`{replicas: 0}`:                       "replicas",
		`{replicas: three}`:                   "replicas",
		`{cluster: "a b"}`:                    "cluster",
		`{tls: {mode: sometimes}}`:            "mode",
		`{tls: {mode: secret}}`:               "tls.secretName must name",
		`{tls: {mode: csi}}`:                  "tls.certManager.issuerRef must name",
		`{tls: {clientAuth: require}}`:        "clientAuth",
		`{etcd: {endpoints: ["etcd:2379"]}}`:  "set etcd.bundled.enabled to false",
		`{etcd: {bundled: {enabled: false}}}`: "etcd.endpoints must name",
		`{etcd: {bundled: {replicas: 2}}}`:    "replicas",
		`{etcd: {tls: {enabled: true}}}`:      "the bundled etcd has no TLS",
		`{etcd: {bundled: {enabled: false}, endpoints: ["https://etcd:2379"]}}`: "endpoints",
		`{etcd: {auth: {user: weir}}}`:                                          "etcd.auth.existingSecret must name",
		`{rules: {source: configMap}}`:                                          "rules.files or rules.existingConfigMap",
		`{rules: {files: {a.yaml: "domain: a"}}}`:                               "set it to configMap",
		`{rules: {source: configMap, files: {a.txt: "domain: a"}}}`:             "a.txt",
		`{options: {id: a}}`:                                                    "options.id is set by the chart",
		`{options: {xds-server: "eg:1"}}`:                                       "options.xds-server cannot be reached",
		`{options: {trace-endpoint: "http://otel:4317"}}`:                       "options.trace-endpoint cannot be reached",
		`{options: {rls-listen: "127.0.0.1:8081"}}`:                             "options.rls-listen must be",
		`{options: {Peer_Timeout: 1s}}`:                                         "Peer_Timeout",
		`{terminationGracePeriodSeconds: 44}`:                                   "terminationGracePeriodSeconds 44 is too short",
		`{preStopSleepSeconds: 0}`:                                              "preStopSleepSeconds",
		`{podDisruptionBudget: {maxUnavailable: 2}}`:                            "maxUnavailable",
		`{autoscaling: {enabled: true, minReplicas: 9, maxReplicas: 3}}`:        "autoscaling.minReplicas 9",
		`{autoscaling: {enabled: true, scaleDown: {periodSeconds: 75}}}`:        "autoscaling.scaleDown.periodSeconds 75 is too short",
		`{counterMemory: 1Gi}`:                                                  "counterMemory",
	} {
		if _, err := texts(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", values, err, want)
		}
	}
}

// A pod has the time that a node takes at most to hand over its counters, and some to write them.
func TestGracePeriod(t *testing.T) {
	handover := patience(t, "leavePatience") + patience(t, "handOverPatience") + patience(t, "leavePatience") + patience(t, "drainPatience") + 5*time.Second // --auth-max-delay at most
	spec := get[*appsv1.StatefulSet](t, render(t, `{}`), "StatefulSet/"+full).Spec.Template.Spec
	sleep := time.Duration(spec.Containers[0].Lifecycle.PreStop.Sleep.Seconds) * time.Second
	const write = 30 * time.Second // for 25 million counters, at a third of the speed in docs/performance.md and more
	if grace := time.Duration(*spec.TerminationGracePeriodSeconds) * time.Second; grace < sleep+handover+write {
		t.Errorf("the grace period is %v, shorter than %v of sleep, %v of handover and %v to write", grace, sleep, handover, write)
	}
}

// patience returns a constant of node/run.go.
func patience(t *testing.T, name string) time.Duration {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../node/run.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var value string
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && spec.Names[0].Name == name {
			value = durationOf(spec.Values[0])
		}
		return true
	})
	d, err := time.ParseDuration(value)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return d
}

// durationOf returns an expression such as 20 * time.Second as a text such as 20s.
func durationOf(e ast.Expr) string {
	units := map[string]string{"Second": "s", "Millisecond": "ms"}
	switch e := e.(type) {
	case *ast.SelectorExpr:
		return "1" + units[e.Sel.Name]
	case *ast.BinaryExpr:
		return e.X.(*ast.BasicLit).Value + units[e.Y.(*ast.SelectorExpr).Sel.Name]
	}
	return fmt.Sprint(e)
}

// A node waits for etcd within the time that the startup probe gives it, unless an option says otherwise.
func TestEtcdWait(t *testing.T) {
	for values, want := range map[string][]string{
		`{}`: {"240s"},
		`{probes: {startup: {periodSeconds: 1, failureThreshold: 10}}}`: {"5s"},
		`{probes: {startup: {failureThreshold: 5000}}}`:                 {"3600s"}, // the most
		`{options: {etcd-wait: 20s}}`:                                   {"20s"},
	} {
		var got []string
		for _, v := range get[*appsv1.StatefulSet](t, render(t, values), "StatefulSet/"+full).Spec.Template.Spec.Containers[0].Env {
			if v.Name == "WEIR_ETCD_WAIT" {
				got = append(got, v.Value)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", values, got, want)
		}
	}
}

// The bundled etcd is of the version that the tests of nodes run.
func TestEtcdVersion(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`go\.etcd\.io/etcd/server/v3 (v\S+)`).FindSubmatch(mod)
	image := get[*appsv1.StatefulSet](t, render(t, `{}`), "StatefulSet/"+full+"-etcd").Spec.Template.Spec.Containers[0].Image
	if want == nil || !strings.HasSuffix(image, ":"+string(want[1])) {
		t.Errorf("the image is %s, and go.mod has %s", image, want)
	}
}

// The values of the chart all have a place in the schema, and the memory limit leaves room for the counters.
func TestMemory(t *testing.T) {
	c := get[*appsv1.StatefulSet](t, render(t, `{}`), "StatefulSet/"+full).Spec.Template.Spec.Containers[0]
	limit, request := c.Resources.Limits.Memory().Value(), c.Resources.Requests.Memory().Value()
	const counters, long, rest = 1 << 30, 256 << 20, 512 << 20
	if limit < counters+long+rest || limit != request {
		t.Errorf("memory: request %d, limit %d, want both, and at least %d", request, limit, counters+long+rest)
	}
	if !c.Resources.Limits.Cpu().IsZero() {
		t.Error("processor time is limited")
	}
}

// A NetworkPolicy lets only nodes reach the admin port by default.
func TestAdminPort(t *testing.T) {
	for _, rule := range get[*networkingv1.NetworkPolicy](t, render(t, `{}`), "NetworkPolicy/"+full).Spec.Ingress {
		admin := slices.ContainsFunc(rule.Ports, func(p networkingv1.NetworkPolicyPort) bool { return p.Port == nil || p.Port.StrVal == "admin" })
		if admin && (len(rule.From) != 1 || rule.From[0].PodSelector == nil || rule.From[0].NamespaceSelector != nil) {
			t.Errorf("%v may reach the admin port", rule.From)
		}
	}
	for _, p := range get[*corev1.Service](t, render(t, `{}`), "Service/"+full).Spec.Ports {
		if p.Name == "admin" {
			t.Error("the Service for clients has the admin port")
		}
	}
}

// What options have a node ask, or serve, passes the NetworkPolicy, and a port for Envoy is in the Service.
func TestOptionsWithPorts(t *testing.T) {
	t.Parallel()
	asks := get[*networkingv1.NetworkPolicy](t, render(t, matrix["rules by xDS"]), "NetworkPolicy/"+full).Spec.Egress
	if last := asks[len(asks)-1]; len(last.Ports) != 2 || last.Ports[0].Port.IntVal != 18001 {
		t.Errorf("the last rule for egress is %v", last)
	}
	o := render(t, matrix["a port for Envoy"])
	if ports := get[*corev1.Service](t, o, "Service/"+full).Spec.Ports; len(ports) != 3 || ports[2].Port != 8081 || ports[2].TargetPort.StrVal != "rls" {
		t.Errorf("the Service has the ports %v", ports)
	}
	named := slices.ContainsFunc(get[*appsv1.StatefulSet](t, o, "StatefulSet/"+full).Spec.Template.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool {
		return p.Name == "rls" && p.ContainerPort == 8081
	})
	passes := slices.ContainsFunc(get[*networkingv1.NetworkPolicy](t, o, "NetworkPolicy/"+full).Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool {
		return slices.ContainsFunc(r.Ports, func(p networkingv1.NetworkPolicyPort) bool { return p.Port.StrVal == "rls" })
	})
	if !named || !passes {
		t.Errorf("the container has the port: %t, clients may reach it: %t", named, passes)
	}
}

// The notes after an installation are there for all values, and have no holes.
func TestNotes(t *testing.T) {
	t.Parallel()
	for name, values := range matrix {
		files, err := texts(t, values)
		if err != nil {
			t.Fatal(err)
		}
		notes := files["weir/templates/NOTES.txt"]
		if !strings.Contains(notes, "weir nodes") || strings.Contains(notes, "<no value>") || strings.Contains(notes, "%!") {
			t.Errorf("%s:\n%s", name, notes)
		}
	}
}

// freshDir is a directory of the test.
func freshDir(t testing.TB, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// sorted returns the keys in their order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// seconds is a number of seconds.
func seconds[N ~int32 | ~int64](n N) time.Duration { return time.Duration(n) * time.Second }

// The alerts of the chart are those of deploy/prometheus.
func TestAlerts(t *testing.T) {
	want, err := os.ReadFile("../../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(chartDir, "files", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("deploy/helm/weir/files/alerts.yaml is not deploy/prometheus/alerts.yaml: copy it")
	}
	var file monitoringv1.PrometheusRuleSpec
	if err := yaml.UnmarshalStrict(want, &file); err != nil {
		t.Fatal(err)
	}
	wanted, rendered := alertsOf(file), alertsOf(get[*monitoringv1.PrometheusRule](t, render(t, matrix["alerts"]), "PrometheusRule/"+full).Spec)
	if !slices.Equal(rendered, wanted) || len(wanted) < 20 {
		t.Errorf("the chart has %d alerts and the file %d:\n%s\nwant\n%s", len(rendered), len(wanted), strings.Join(rendered, "\n"), strings.Join(wanted, "\n"))
	}
}

// alertsOf returns each alert of a file with its group, expression and time.
func alertsOf(file monitoringv1.PrometheusRuleSpec) (all []string) {
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			wait := monitoringv1.Duration("0s")
			if rule.For != nil {
				wait = *rule.For
			}
			all = append(all, fmt.Sprintf("%s: %s for %s: %s", group.Name, rule.Alert, wait, rule.Expr.String()))
		}
	}
	return all
}

// The alerts compare the nodes of a job. Two releases are two clusters, in one namespace or in two.
func TestEachReleaseIsAJob(t *testing.T) {
	replacement := regexp.MustCompile(`targetLabel: job\n\s+replacement: (weir\S*)\n`)
	jobs := make(map[string]string) // of which release
	for _, r := range []struct{ name, namespace string }{{"weir", "a"}, {"weir", "b"}, {"edge", "a"}} {
		files, err := textsOf(t, r.name, r.namespace, matrix["monitoring"])
		if err != nil {
			t.Fatal(err)
		}
		found := replacement.FindStringSubmatch(files["weir/templates/monitoring.yaml"])
		if found == nil {
			t.Fatalf("%v: the ServiceMonitor sets no job that begins with weir:\n%s", r, files["weir/templates/monitoring.yaml"])
		}
		release := r.name + " of namespace " + r.namespace
		if other := jobs[found[1]]; other != "" {
			t.Errorf("release %s has the job %s, as has %s", release, found[1], other)
		}
		jobs[found[1]] = release
	}
}
