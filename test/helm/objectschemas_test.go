package helm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"helm.sh/helm/v3/pkg/chart/loader"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	autoscalingvalidation "k8s.io/kubernetes/pkg/apis/autoscaling/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/networking"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	networkingvalidation "k8s.io/kubernetes/pkg/apis/networking/validation"
	"k8s.io/kubernetes/pkg/apis/policy"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	policyvalidation "k8s.io/kubernetes/pkg/apis/policy/validation"
	"sigs.k8s.io/yaml"
)

// oldest is a Kubernetes of the first version that the chart supports.
const oldest = "v1.30.14"

// The version is that of the chart.
func TestOldestKubernetes(t *testing.T) {
	chart, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	if first, found := strings.CutPrefix(chart.Metadata.KubeVersion, ">="); !found || !strings.HasPrefix(oldest, "v"+strings.TrimSuffix(first, ".0-0")+".") {
		t.Errorf("the chart supports %s, and its objects are compared with %s", chart.Metadata.KubeVersion, oldest)
	}
}

// TestSchemas: with all values, the objects agree with the schemas of the oldest Kubernetes, which are its own OpenAPI documents, and with
// those of cert-manager. As kubeconform -strict does, it refuses fields that a schema does not have.
func TestSchemas(t *testing.T) {
	t.Parallel()
	s := newSchemas(t)
	for name, values := range matrix {
		for _, text := range documents(t, values) {
			if err := s.check(text); err != nil {
				t.Errorf("%s: %v\n%s", name, err, text)
			}
		}
	}
	for want, object := range map[string]string{
		"additional properties 'paralel' not allowed":    `{apiVersion: apps/v1, kind: StatefulSet, spec: {paralel: 1, serviceName: a, selector: {}, template: {}}}`,
		"missing property 'selector'":                    `{apiVersion: apps/v1, kind: StatefulSet, spec: {serviceName: a, template: {}}}`,
		"got string, want integer":                       `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, spec: {maxReplicas: "3", scaleTargetRef: {kind: a, name: b}}}`,
		"missing property 'issuerRef'":                   `{apiVersion: cert-manager.io/v1, kind: Certificate, spec: {secretName: a}}`,
		"value must be one of 'RSA', 'ECDSA', 'Ed25519'": `{apiVersion: cert-manager.io/v1, kind: Certificate, spec: {secretName: a, issuerRef: {name: a}, privateKey: {algorithm: none}}}`,
	} {
		if err := s.check(object); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", object, err, want)
		}
	}
}

// schemas check objects in YAML.
type schemas struct {
	t        *testing.T
	compiler *jsonschema.Compiler
	urls     map[string]string // by "apiVersion/kind"
}

func newSchemas(t *testing.T) *schemas {
	t.Helper()
	s := &schemas{t, jsonschema.NewCompiler(), map[string]string{}}
	s.compiler.DefaultDraft(jsonschema.Draft4)
	dir := filepath.Join(moduleDir(t, "k8s.io/kubernetes@"+oldest), "api", "openapi-spec", "v3")
	for _, group := range []string{"api__v1", "apis__apps__v1", "apis__policy__v1", "apis__autoscaling__v2", "apis__networking.k8s.io__v1"} {
		s.addOpenAPI(filepath.Join(dir, group+"_openapi.json"))
	}
	crds := filepath.Join(moduleDir(t, "github.com/cert-manager/cert-manager@"), "deploy", "crds")
	for _, plural := range []string{"certificates", "issuers"} {
		s.addCRD(filepath.Join(crds, "cert-manager.io_"+plural+".yaml"))
	}
	return s
}

// moduleDir returns where the go command has put a module: that of a version, or else that of go.mod.
func moduleDir(t *testing.T, module string) string {
	t.Helper()
	args := []string{"mod", "download", "-json", module}
	if path, version, _ := strings.Cut(module, "@"); version == "" {
		args = []string{"list", "-m", "-json", path}
	}
	cmd := exec.Command("go", args...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	var found struct{ Dir string }
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatal(err)
	}
	return found.Dir
}

// addOpenAPI adds all kinds of a document.
func (s *schemas) addOpenAPI(path string) {
	s.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	document := s.parse(text)
	s.add(path, document)
	for name, schema := range document["components"].(map[string]any)["schemas"].(map[string]any) {
		kinds, _ := schema.(map[string]any)["x-kubernetes-group-version-kind"].([]any)
		for _, k := range kinds {
			k := k.(map[string]any)
			group := strings.TrimPrefix(k["group"].(string)+"/", "/")
			s.urls[group+k["version"].(string)+"/"+k["kind"].(string)] = path + "#/components/schemas/" + name
		}
	}
}

// addCRD adds the kind of a CustomResourceDefinition, in each of its versions.
func (s *schemas) addCRD(path string) {
	s.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	if text, err = yaml.YAMLToJSON(text); err != nil {
		s.t.Fatal(err)
	}
	document := s.parse(text)
	s.add(path, document)
	spec := document["spec"].(map[string]any)
	for i, version := range spec["versions"].([]any) {
		name := spec["group"].(string) + "/" + version.(map[string]any)["name"].(string) + "/" + spec["names"].(map[string]any)["kind"].(string)
		s.urls[name] = fmt.Sprintf("%s#/spec/versions/%d/schema/openAPIV3Schema", path, i)
	}
}

func (s *schemas) parse(text []byte) map[string]any {
	s.t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		s.t.Fatal(err)
	}
	return document.(map[string]any)
}

func (s *schemas) add(path string, document map[string]any) {
	s.t.Helper()
	closed(document)
	if err := s.compiler.AddResource(path, document); err != nil {
		s.t.Fatal(err)
	}
}

// closed has all schemas in a document refuse properties that they do not name. Only metadata of a CustomResourceDefinition is open: its
// own schema is that of Kubernetes.
func closed(in any) {
	switch in := in.(type) {
	case map[string]any:
		_, named := in["properties"].(map[string]any)
		if open := in["additionalProperties"] != nil || in["x-kubernetes-preserve-unknown-fields"] == true; named && in["type"] == "object" && !open {
			in["additionalProperties"] = false
		}
		for _, v := range in {
			closed(v)
		}
	case []any:
		for _, v := range in {
			closed(v)
		}
	}
}

// check returns how an object differs from the schema of its kind. Kinds of the operator of Prometheus have none here.
func (s *schemas) check(text string) error {
	text = strings.TrimSpace(text)
	object, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return err
	}
	document := s.parse(object)
	kind := fmt.Sprintf("%v/%v", document["apiVersion"], document["kind"])
	if strings.HasPrefix(kind, "monitoring.coreos.com/") {
		return nil
	}
	schema, err := s.compiler.Compile(s.urls[kind])
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	return schema.Validate(document)
}

// TestAPIServerAcceptsAll: with all values, the code by which the API server of the newest Kubernetes validates objects has nothing against
// those that are Kubernetes' own.
func TestAPIServerAcceptsAll(t *testing.T) {
	t.Parallel()
	for name, values := range matrix {
		for _, text := range documents(t, values) {
			if problems := validate(t, text); len(problems) > 0 {
				t.Errorf("%s: %v\n%s", name, problems.ToAggregate(), text)
			}
		}
	}
	for want, object := range map[string]string{
		"spec.template.metadata.labels": `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: a, namespace: b}, spec: {serviceName: a, selector: {matchLabels: {a: b}}, template: {spec: {containers: [{name: a, image: b}]}}}}`,
		"spec.ports[1].name":            `{apiVersion: v1, kind: Service, metadata: {name: a, namespace: b}, spec: {ports: [{name: a, port: 1}, {name: a, port: 2}]}}`,
		"spec.maxReplicas":              `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: a, namespace: b}, spec: {minReplicas: 9, maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: StatefulSet, name: b}}}`,
		"spec.ingress[0].ports[0].port": `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: a, namespace: b}, spec: {podSelector: {}, ingress: [{ports: [{port: 70000}]}]}}`,
		"spec.maxUnavailable":           `{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: a, namespace: b}, spec: {selector: {}, maxUnavailable: -1}}`,
	} {
		if problems := validate(t, object); len(problems) == 0 || problems[0].Field != want {
			t.Errorf("%s: %v, want a problem of %s", object, problems.ToAggregate(), want)
		}
	}
}

// validate decodes an object, and defaults and validates it, as the API server does when the object is created.
func validate(t *testing.T, text string) field.ErrorList {
	t.Helper()
	if strings.Contains(text, "apiVersion: monitoring.coreos.com/") || strings.Contains(text, "apiVersion: cert-manager.io/") {
		return nil
	}
	object, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	versioned, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(object, nil, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	legacyscheme.Scheme.Default(versioned)
	internal, err := legacyscheme.Scheme.UnsafeConvertToVersion(versioned.DeepCopyObject(), runtime.InternalGroupVersioner)
	if err != nil {
		t.Fatal(err)
	}
	declared := legacyscheme.Scheme.Validate(t.Context(), map[string]bool{"HPAScaleToZero": false}, versioned)
	return append(declared, validateInternal(t, internal)...)
}

// validateInternal validates an object in the form that the API server has.
func validateInternal(t *testing.T, object runtime.Object) field.ErrorList {
	t.Helper()
	switch o := object.(type) {
	case *apps.StatefulSet:
		return appsvalidation.ValidateStatefulSet(o, appsvalidation.StatefulSetValidationOptions{}, corevalidation.PodValidationOptions{})
	case *core.Service:
		if o.Spec.ClusterIP != "" { // the API server makes a list of it before
			o.Spec.ClusterIPs = []string{o.Spec.ClusterIP}
		}
		return corevalidation.ValidateServiceCreate(o)
	case *core.ServiceAccount:
		return corevalidation.ValidateServiceAccount(o)
	case *core.ConfigMap:
		return corevalidation.ValidateConfigMap(o)
	case *policy.PodDisruptionBudget:
		return policyvalidation.ValidatePodDisruptionBudget(o, policyvalidation.PodDisruptionBudgetValidationOptions{})
	case *autoscaling.HorizontalPodAutoscaler:
		return autoscalingvalidation.ValidateHorizontalPodAutoscaler(o, autoscalingvalidation.HorizontalPodAutoscalerSpecValidationOptions{MinReplicasLowerBound: 1})
	case *networking.NetworkPolicy:
		return networkingvalidation.ValidateNetworkPolicy(o, networkingvalidation.NetworkPolicyValidationOptions{})
	}
	t.Fatalf("%T is no kind that this test knows", object)
	return nil
}
