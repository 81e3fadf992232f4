package helm

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/strvals"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/weirlimit/weir/test/process"
)

// page is the how-to page of the chart.
const page = "../../docs/kubernetes.md"

func readPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// commands returns the page's commands that begin so.
func commands(t *testing.T, prefix string) (found []string) {
	t.Helper()
	for line := range strings.Lines(readPage(t)) {
		if rest, ok := strings.CutPrefix(line, "    "+prefix); ok {
			found = append(found, prefix+strings.TrimRight(rest, "\n"))
		}
	}
	if len(found) == 0 {
		t.Fatalf("the page has no command %q", prefix)
	}
	return found
}

// The values on the page can be rendered: blocks of YAML, and what follows --set.
func TestPageValues(t *testing.T) {
	t.Parallel()
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(readPage(t), -1)
	if len(blocks) < 4 {
		t.Fatalf("%d blocks of values", len(blocks))
	}
	for _, block := range blocks {
		render(t, block[1])
	}
	for _, command := range commands(t, "helm ") {
		values := map[string]any{}
		for _, set := range regexp.MustCompile(`--set (\S+)`).FindAllStringSubmatch(command, -1) {
			if err := strvals.ParseInto(set[1], values); err != nil {
				t.Fatal(err)
			}
		}
		text, err := yaml.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		render(t, string(text))
	}
}

// The files that the page's weir certs makes are those that pods read from their Secret, and are good for their node.
func TestPageCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	command := strings.Fields(commands(t, "weir certs init")[0])
	cmd := exec.CommandContext(t.Context(), process.Binary(t), command[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	set := get[*appsv1.StatefulSet](t, render(t, `{tls: {mode: secret, secretName: shop-certs}}`), "StatefulSet/"+full)
	for i := range *set.Spec.Replicas {
		p := newPod(set, int(i), substitution{"/etc/weir/tls", filepath.Join(dir, "certs")})
		pair, err := tls.LoadX509KeyPair(p.variable("WEIR_TLS_CERT"), p.variable("WEIR_TLS_KEY"))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprint(pair.Leaf.URIs), "[urn:weir:"+p.variable("WEIR_CLUSTER")+":node:"+p.variable("WEIR_ID")+"]"; got != want {
			t.Errorf("the certificate names %s, want %s", got, want)
		}
		host, _, err := net.SplitHostPort(p.variable("WEIR_ADVERTISE"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{host, "localhost", full + "." + namespace + ".svc"} {
			if err := pair.Leaf.VerifyHostname(name); err != nil {
				t.Error(err)
			}
		}
	}
}
