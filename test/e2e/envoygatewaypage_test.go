package e2e

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/internal/xdstest"
	"github.com/weirlimit/weir/test/process"
)

// gatewayPage is the page whose values these tests start pods with.
const gatewayPage = "../../docs/envoy-gateway.md"

// Sections of the page that have values of pods.
const (
	onePod         = "Envoy Gateway: one pod"
	clusterOfPods  = "Envoy Gateway: a cluster"
	aiGateway      = "Envoy AI Gateway"
	anotherCommand = "Another command"
)

// pageContainer is what the page says of a container, with no other fields than these.
type pageContainer struct {
	Name, Image  string
	Command      []string
	Env          []pageVariable
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

// pageVariable is a variable of a container: a text, or a field of its pod.
type pageVariable struct {
	Name, Value string
	ValueFrom   struct {
		FieldRef struct {
			FieldPath string `yaml:"fieldPath"`
		} `yaml:"fieldRef"`
	} `yaml:"valueFrom"`
}

// pageDeployment is the gateway's rateLimitDeployment.
type pageDeployment struct {
	Replicas  int
	Container pageContainer
	Pod       struct {
		Volumes []struct {
			Name     string
			EmptyDir struct{} `yaml:"emptyDir"`
		}
	}
	Patch struct {
		Type  string
		Value struct {
			Spec struct {
				Template struct {
					Spec struct{ Containers []pageContainer }
				}
			}
		}
	}
}

// pageFragment is a block that is added to the gateway's values.
type pageFragment struct {
	RateLimitDeployment pageDeployment `yaml:"rateLimitDeployment"`
}

// pageValues are the values of the chart gateway-helm.
type pageValues struct {
	Config struct {
		EnvoyGateway struct {
			Provider struct {
				Type       string
				Kubernetes pageFragment
			}
			RateLimit struct {
				Backend struct {
					Type  string
					Redis struct{ URL string }
				}
			} `yaml:"rateLimit"`
		} `yaml:"envoyGateway"`
	}
}

// pageBlocks returns the blocks of YAML of a section of the page.
func pageBlocks(t *testing.T, section string) (blocks []string) {
	t.Helper()
	page, err := os.ReadFile(gatewayPage)
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(page), "\n## "+section+"\n")
	if !found {
		t.Fatalf("%s has no section %q", gatewayPage, section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, block[1])
	}
	return blocks
}

// decodePage decodes the first block of a section into v, and refuses fields that v does not have.
func decodePage(t *testing.T, section string, v any) {
	t.Helper()
	blocks := pageBlocks(t, section)
	if len(blocks) == 0 {
		t.Fatalf("%s has no YAML in %q", gatewayPage, section)
	}
	decoder := yaml.NewDecoder(strings.NewReader(blocks[0]))
	decoder.KnownFields(true)
	if err := decoder.Decode(v); err != nil {
		t.Fatalf("%s, %s: %v", gatewayPage, section, err)
	}
}

// onePodOfThePage returns the deployment of the values for one pod.
func onePodOfThePage(t *testing.T) pageDeployment {
	t.Helper()
	var values pageValues
	decodePage(t, onePod, &values)
	return values.Config.EnvoyGateway.Provider.Kubernetes.RateLimitDeployment
}

// fragmentOfThePage returns the deployment of a section that adds to these values.
func fragmentOfThePage(t *testing.T, section string) pageDeployment {
	t.Helper()
	var fragment pageFragment
	decodePage(t, section, &fragment)
	return fragment.RateLimitDeployment
}

// pagePod says what a test has in place of what a pod has.
type pagePod struct {
	name, ip string
	has      map[string]string // by values of the page
}

// reference is a variable within the value of another.
var reference = regexp.MustCompile(`\$\(([A-Z_]+)\)`)

// environment returns the variables as Kubernetes sets them in the pod. A value may refer to variables above it.
func (p pagePod) environment(t *testing.T, variables []pageVariable) (env []string) {
	t.Helper()
	if len(variables) == 0 {
		t.Fatal("the container on the page has no variables")
	}
	values, used := make(map[string]string), make(map[string]bool)
	for _, v := range variables {
		value := v.Value
		if path := v.ValueFrom.FieldRef.FieldPath; path != "" {
			fields := map[string]string{"status.podIP": p.ip, "metadata.name": p.name}
			if value = fields[path]; value == "" || v.Value != "" {
				t.Fatalf("%s on the page is %q and the field %q", v.Name, v.Value, path)
			}
		}
		if instead, is := p.has[value]; is {
			value, used[value] = instead, true
		}
		value = reference.ReplaceAllStringFunc(value, func(text string) string {
			return cmp.Or(values[strings.Trim(text, "$()")], text)
		})
		values[v.Name] = value
		env = append(env, v.Name+"="+value)
	}
	for value := range p.has {
		if !used[value] {
			t.Fatalf("no variable on the page is %q, among %v", value, variables)
		}
	}
	return env
}

// gatewaySets returns the variables that the gateway sets in the pods of its rate limit service
// (internal/infrastructure/kubernetes/ratelimit/resource.go).
func gatewaySets(c process.Certificates, server *xdstest.Server) []string {
	certificate, key, ca := c.File("node-envoy-ratelimit.crt"), c.File("node-envoy-ratelimit.key"), c.File("ca.crt")
	return []string{
		"RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_IGNOREDOTFILES=true", "RUNTIME_WATCH_ROOT=false",
		"LOG_LEVEL=info", "USE_STATSD=false", "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=" + server.Address,
		"CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit", "GRPC_SERVER_USE_TLS=true",
		"GRPC_SERVER_TLS_CERT=" + certificate, "GRPC_SERVER_TLS_KEY=" + key, "GRPC_SERVER_TLS_CA_CERT=" + ca,
		"CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT=" + certificate,
		"CONFIG_GRPC_XDS_CLIENT_TLS_KEY=" + key, "CONFIG_GRPC_XDS_SERVER_TLS_CACERT=" + ca,
		"FORCE_START_WITHOUT_INITIAL_CONFIG=true", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=none:6379",
		"USE_PROMETHEUS=true", "PROMETHEUS_ADDR=:19001", "PROMETHEUS_MAPPER_YAML=/etc/statsd-exporter/conf.yaml",
	}
}

// podListens returns what differs from a pod, which has an address of its own: where it listens, and how soon it tries
// the xDS server again.
func podListens(t *testing.T, httpAddress, grpcAddress string) []string {
	t.Helper()
	host, _, err := net.SplitHostPort(httpAddress)
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		"HOST=" + host, "PORT=" + port(t, httpAddress), "GRPC_HOST=" + host, "GRPC_PORT=" + port(t, grpcAddress), "WEIR_ETCD_LISTEN=" + host + ":0",
		"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=100ms", "XDS_CLIENT_BACKOFF_MAX_INTERVAL=500ms",
	}
}

// newGateway returns the certificates of a gateway, and its xDS server with mutual TLS, which does not run yet.
func newGateway(t *testing.T, host string) (process.Certificates, *xdstest.Server) {
	t.Helper()
	c := process.NewCertificates(t)
	c.Make("node", "envoy-gateway", "--host", "127.0.0.1,envoy-gateway")
	c.Make("node", "envoy-ratelimit", "--host", host+",envoy-ratelimit")
	config := c.Config("node-envoy-gateway")
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, config.RootCAs
	return c, xdstest.New(t, credentials.NewTLS(config))
}

// knowsItsVariables fails the test if weir has ignored one of its own variables, as it does with unknown names.
func knowsItsVariables(t *testing.T, log string) {
	t.Helper()
	for line := range strings.Lines(log) {
		if strings.Contains(line, "unknown environment variables") {
			t.Errorf("a pod with the variables of the page logs %s", line)
		}
	}
}

// expectAnswers asks for a user, and compares the codes.
func expectAnswers(t *testing.T, ask func(string) (string, error), user string, want ...string) {
	t.Helper()
	for i, code := range want {
		if got, err := ask(user); err != nil || got != code {
			t.Errorf("request %d of %s: %s, %v, want %s", i, user, got, err, code)
		}
	}
}

// Each container with variables on the page is one that a test below, or TestInThePodOfEnvoyGateway, starts. Data directories are
// volumes, since the root is read-only.
func TestContainersOfTheEnvoyGatewayPage(t *testing.T) {
	page, err := os.ReadFile(gatewayPage)
	if err != nil {
		t.Fatal(err)
	}
	tested := 0
	for _, section := range []string{onePod, clusterOfPods, aiGateway} {
		tested += strings.Count(pageBlocks(t, section)[0], " env:\n")
	}
	if all := strings.Count(string(page), " env:\n"); tested != 3 || all != tested {
		t.Errorf("the page has %d containers with variables, and %d are tested, want 3", all, tested)
	}
	deployment := onePodOfThePage(t)
	mounts, volumes := deployment.Container.VolumeMounts, deployment.Pod.Volumes
	if len(mounts) != 1 || len(volumes) != 1 || mounts[0].Name != volumes[0].Name {
		t.Fatalf("mounts %v of volumes %v", mounts, volumes)
	}
	if !slices.ContainsFunc(deployment.Container.Env, func(v pageVariable) bool {
		return v.Name == "WEIR_DATA_DIR" && v.Value == mounts[0].MountPath
	}) {
		t.Errorf("WEIR_DATA_DIR is not the volume %v", mounts[0])
	}
}

// Pods with the variables that the page adds for a cluster find each other by their etcd, and hold a limit together.
func TestClusterOfTheEnvoyGatewayPage(t *testing.T) {
	t.Parallel()
	host := process.Host(t)
	certificates, server := newGateway(t, host)
	server.Start(t)
	server.Set(t, "1", policyOf(4))
	etcd := process.StartEtcd(t)
	alone, together := onePodOfThePage(t), fragmentOfThePage(t, clusterOfPods)
	if together.Replicas < 3 {
		t.Errorf("the cluster of the page has %d pods", together.Replicas)
	}
	variables := slices.Concat(alone.Container.Env, together.Container.Env)
	var asks []func(string) (string, error)
	var logs []func() string
	var admins []string
	for _, name := range []string{"pod-a", "pod-b"} {
		httpAddress, proxies, admin, peers := freeAddressOn(t, host), freeAddressOn(t, host), freeAddressOn(t, host), freeAddressOn(t, host)
		pod := pagePod{name: name, ip: host, has: map[string]string{
			"/var/lib/weir": t.TempDir(), "0.0.0.0:19001": admin,
			"0.0.0.0:9090": peers, "$(POD_IP):9090": "$(POD_IP):" + port(t, peers),
			"etcd-0.etcd:2379,etcd-1.etcd:2379,etcd-2.etcd:2379": etcd.Endpoint,
		}}
		patient := []string{"WEIR_PEER_TIMEOUT=4s"} // the machine may be busy
		log, _ := startRatelimit(t, slices.Concat(podListens(t, httpAddress, proxies), patient, gatewaySets(certificates, server), pod.environment(t, variables))...)
		expectCode(t, "http://"+httpAddress+"/healthcheck", http.StatusOK)
		asks = append(asks, envoyClient(t, proxies, credentials.NewTLS(certificates.Config(""))))
		logs, admins = append(logs, log), append(admins, admin)
	}
	for _, admin := range admins {
		process.Await(t, process.Patience, func() error {
			_, body, err := get(t, "http://"+admin+"/v1/nodes")
			if err == nil && (strings.Count(body, `"member":true`) != 2 || !strings.Contains(body, `"pod-a"`) || !strings.Contains(body, `"pod-b"`)) {
				err = fmt.Errorf("the members are %s", body)
			}
			return err
		})
		process.Await(t, process.Patience, func() error {
			_, body, err := get(t, "http://"+admin+"/rlconfig")
			if err == nil && !strings.Contains(body, "requests_per_unit=4") {
				err = fmt.Errorf("no limit in %s", body)
			}
			return err
		})
	}
	for user := range 10 { // owned by one pod or by the other
		name := fmt.Sprint("user", user)
		for _, ask := range asks {
			expectAnswers(t, ask, name, "OK", "OK")
		}
		for _, ask := range asks {
			expectAnswers(t, ask, name, "OVER_LIMIT")
		}
	}
	for _, log := range logs {
		knowsItsVariables(t, log())
	}
}

// The container for QuotaPolicy follows the AI gateway's controller without TLS, by the variables of the page alone. It serves
// before the first limits.
func TestPodOfTheAIGatewayPage(t *testing.T) {
	t.Parallel()
	host := process.Host(t)
	server := xdstest.New(t, nil)
	server.NodeID = "envoy-ai-gateway-ratelimit"
	var containers []pageContainer
	decodePage(t, aiGateway, &containers)
	if len(containers) != 1 {
		t.Fatalf("%d containers", len(containers))
	}
	httpAddress, proxies := freeAddressOn(t, host), freeAddressOn(t, host)
	pod := pagePod{name: "pod", ip: host, has: map[string]string{
		"/var/lib/weir": t.TempDir(), "ai-gateway-controller.envoy-ai-gateway-system:18002": server.Address,
		"$(POD_IP):8081": "$(POD_IP):" + port(t, proxies),
	}}
	log, stop := startRatelimit(t, slices.Concat(podListens(t, httpAddress, proxies), pod.environment(t, containers[0].Env))...)
	expectCode(t, "http://"+httpAddress+"/healthcheck", http.StatusOK)
	ask := envoyClient(t, proxies, insecure.NewCredentials())
	expectAnswers(t, ask, "early", "OK")
	server.Start(t)
	server.Set(t, "1", policyOf(2))
	server.Accepted(t, "1")
	expectAnswers(t, ask, "one", "OK", "OK", "OVER_LIMIT")
	if _, body, err := get(t, "http://"+httpAddress+"/v1/nodes"); err != nil || !strings.Contains(body, proxies) {
		t.Errorf("no member at %s in %s, %v", proxies, body, err)
	}
	knowsItsVariables(t, log())
	stop()
	service := struct {
		Controller struct {
			Service string `yaml:"quotaRateLimitServiceAddr"`
		}
	}{}
	if err := yaml.Unmarshal([]byte(pageBlocks(t, aiGateway)[1]), &service); err != nil || !strings.HasSuffix(service.Controller.Service, ":8081") {
		t.Errorf("proxies ask %q, %v", service.Controller.Service, err)
	}
}

// The command by which the page replaces the image's own follows the gateway as well.
func TestCommandOfTheEnvoyGatewayPage(t *testing.T) {
	t.Parallel()
	host := process.Host(t)
	certificates, server := newGateway(t, host)
	server.Start(t)
	server.Set(t, "1", policyOf(1))
	patched := fragmentOfThePage(t, anotherCommand).Patch.Value.Spec.Template.Spec.Containers
	if len(patched) != 1 || len(patched[0].Command) == 0 || patched[0].Command[0] != "/weir" {
		t.Fatalf("the patch has the containers %v", patched)
	}
	httpAddress, proxies := freeAddressOn(t, host), freeAddressOn(t, host)
	pod := pagePod{name: "pod", ip: host, has: map[string]string{"/var/lib/weir": t.TempDir(), "0.0.0.0:19001": freeAddressOn(t, host)}}
	env := slices.Concat(podListens(t, httpAddress, proxies), gatewaySets(certificates, server), pod.environment(t, onePodOfThePage(t).Container.Env))
	log, stop := startCommand(t, slices.Concat([]string{process.Binary(t)}, patched[0].Command[1:]), append(env, "WEIR_GRPC="+host+":0"))
	server.Accepted(t, "1")
	expectCode(t, "http://"+httpAddress+"/healthcheck", http.StatusOK)
	expectAnswers(t, envoyClient(t, proxies, credentials.NewTLS(certificates.Config(""))), "one", "OK", "OVER_LIMIT")
	knowsItsVariables(t, log())
	stop()
}
