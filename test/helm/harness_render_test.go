package helm

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const (
	chartDir  = "../../deploy/helm/weir"
	release   = "shop"
	namespace = "limits"
	full      = "shop-weir" // name of the objects of that release
)

// kinds are the objects that the chart may have, by "apiVersion/kind".
var kinds = map[string]func() metav1.Object{
	"v1/Service":                             func() metav1.Object { return new(corev1.Service) },
	"v1/ServiceAccount":                      func() metav1.Object { return new(corev1.ServiceAccount) },
	"v1/ConfigMap":                           func() metav1.Object { return new(corev1.ConfigMap) },
	"apps/v1/StatefulSet":                    func() metav1.Object { return new(appsv1.StatefulSet) },
	"policy/v1/PodDisruptionBudget":          func() metav1.Object { return new(policyv1.PodDisruptionBudget) },
	"autoscaling/v2/HorizontalPodAutoscaler": func() metav1.Object { return new(autoscalingv2.HorizontalPodAutoscaler) },
	"networking.k8s.io/v1/NetworkPolicy":     func() metav1.Object { return new(networkingv1.NetworkPolicy) },
	"monitoring.coreos.com/v1/ServiceMonitor": func() metav1.Object {
		return new(monitoringv1.ServiceMonitor)
	},
	"monitoring.coreos.com/v1/PrometheusRule": func() metav1.Object { return new(monitoringv1.PrometheusRule) },
	"cert-manager.io/v1/Certificate":          func() metav1.Object { return new(certmanagerv1.Certificate) },
	"cert-manager.io/v1/Issuer":               func() metav1.Object { return new(certmanagerv1.Issuer) },
}

// objects are what was rendered, by "kind/name".
type objects map[string]metav1.Object

// get returns the object of that kind and name.
func get[T metav1.Object](t testing.TB, o objects, name string) T {
	t.Helper()
	found, ok := o[name].(T)
	if !ok {
		t.Fatalf("there is no %s among %v", name, slices.Sorted(maps.Keys(o)))
	}
	return found
}

// parse parses values as in a file of them.
func parse(t testing.TB, text string) map[string]any {
	t.Helper()
	values := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// texts renders the chart's files.
func texts(t testing.TB, values string) (map[string]string, error) {
	t.Helper()
	return textsOf(t, release, namespace, values)
}

// textsOf renders the files of a release.
func textsOf(t testing.TB, release, namespace, values string) (map[string]string, error) {
	t.Helper()
	chart, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	if capabilities.KubeVersion, err = parseKubeVersion("v1.30.0"); err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(chart, parse(t, values), chartutil.ReleaseOptions{Name: release, Namespace: namespace, IsInstall: true, Revision: 1}, capabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, all)
}

func parseKubeVersion(v string) (chartutil.KubeVersion, error) {
	parsed, err := chartutil.ParseKubeVersion(v)
	if err != nil {
		return chartutil.KubeVersion{}, err
	}
	return *parsed, nil
}

// render renders the chart's objects, and decodes each strictly: a field that Kubernetes does not have is an error.
func render(t testing.TB, values string) objects {
	t.Helper()
	all := objects{}
	for _, text := range documents(t, values) {
		if err := all.add(text); err != nil {
			t.Fatalf("with\n%s\n%v:\n%s", values, err, text)
		}
	}
	return all
}

// documents renders the chart's objects as texts. Each begins with a comment that names its file.
func documents(t testing.TB, values string) (all []string) {
	t.Helper()
	files, err := texts(t, values)
	if err != nil {
		t.Fatalf("with\n%s\n%v", values, err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		for _, text := range strings.Split("\n"+files[name], "\n---") {
			if !onlyComments(text) {
				all = append(all, "# "+name+"\n"+text)
			}
		}
	}
	return all
}

func (o objects) add(text string) error {
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal([]byte(text), &meta); err != nil {
		return err
	}
	newObject := kinds[meta.APIVersion+"/"+meta.Kind]
	if newObject == nil {
		return fmt.Errorf("%s/%s is no kind that this test knows", meta.APIVersion, meta.Kind)
	}
	object := newObject()
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		return err
	}
	name := meta.Kind + "/" + object.GetName()
	if o[name] != nil {
		return fmt.Errorf("%s is there twice", name)
	}
	o[name] = object
	return nil
}

func onlyComments(text string) bool {
	for line := range bytes.Lines([]byte(text)) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}
