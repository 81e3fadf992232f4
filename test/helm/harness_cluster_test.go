package helm

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// cluster is a Kubernetes cluster as far as the chart needs one: it runs the pods of StatefulSets as processes, and a Service routes
// to those that are ready.
type cluster struct {
	t       testing.TB
	all     objects
	hosts   map[string]string // of pods, by name
	secrets map[string]files  // that are not in the chart
	data    string            // directory of the volumes that stay
	// late is how long proxies still route to a pod that was deleted.
	late time.Duration

	mu   sync.Mutex
	pods map[string]*pod // guarded by mu
	gone []*pod          // that were deleted and started again; guarded by mu
}

func newCluster(t testing.TB, values string) *cluster {
	c := &cluster{t: t, all: render(t, values), hosts: map[string]string{}, secrets: map[string]files{}, data: t.TempDir(), pods: map[string]*pod{}}
	for _, s := range []*appsv1.StatefulSet{c.set(full), c.set(full + "-etcd")} {
		for i := range *s.Spec.Replicas {
			// Ports are those of the chart, so each pod has an address of its own. Those of other tests are below 127.128.0.0.
			name := fmt.Sprintf("%s-%d", s.Name, i)
			c.hosts[name] = newHost()
		}
	}
	return c
}

// newHost returns an address for a pod. A pod keeps it, as it keeps its name in Kubernetes, by which the others know it.
func newHost() string {
	return net.IPv4(127, byte(128+mathrand.IntN(64)), byte(mathrand.IntN(256)), byte(mathrand.IntN(256))).String()
}

func (c *cluster) set(name string) *appsv1.StatefulSet {
	c.t.Helper()
	return get[*appsv1.StatefulSet](c.t, c.all, "StatefulSet/"+name)
}

// start starts the pod of that number, with its volumes.
func (c *cluster) start(set string, ordinal int) *pod {
	c.t.Helper()
	s := c.set(set)
	name := fmt.Sprintf("%s-%d", set, ordinal)
	sub := substitution{"0.0.0.0:", c.hosts[name] + ":"}
	for _, other := range []string{full, full + "-etcd"} {
		o := c.set(other)
		for i := range *o.Spec.Replicas {
			pod := fmt.Sprintf("%s-%d", other, i)
			sub = append(sub, pod+"."+o.Spec.ServiceName+"."+namespace+".svc", c.hosts[pod])
		}
	}
	// The longest paths first: none is to be replaced by the beginning of it.
	mounts := s.Spec.Template.Spec.Containers[0].VolumeMounts
	for length := 100; length > 0; length-- {
		for _, m := range mounts {
			if len(m.MountPath) == length {
				sub = append(sub, m.MountPath, c.volume(s, name, m.Name))
			}
		}
	}
	p := newPod(s, ordinal, sub)
	p.host = c.hosts[name]
	p.start(c.t)
	c.mu.Lock()
	if former := c.pods[name]; former != nil {
		c.gone = append(c.gone, former)
	}
	c.pods[name] = p
	c.mu.Unlock()
	return p
}

// volume returns the directory of a pod's volume, with its contents.
func (c *cluster) volume(s *appsv1.StatefulSet, pod, name string) string {
	c.t.Helper()
	for _, claim := range s.Spec.VolumeClaimTemplates {
		if claim.Name == name {
			dir := filepath.Join(c.data, claim.Name+"-"+pod)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				c.t.Fatal(err)
			}
			return dir
		}
	}
	dir := freshDir(c.t, name)
	for _, v := range s.Spec.Template.Spec.Volumes {
		if v.Name == name {
			mount(c.t, dir, c.contents(pod, v.VolumeSource))
		}
	}
	return dir
}

func (c *cluster) contents(pod string, v corev1.VolumeSource) files {
	c.t.Helper()
	contents := files{}
	switch {
	case v.ConfigMap != nil:
		for name, text := range get[*corev1.ConfigMap](c.t, c.all, "ConfigMap/"+v.ConfigMap.Name).Data {
			contents[name] = []byte(text)
		}
	case v.Secret != nil:
		c.project(contents, v.Secret.SecretName, v.Secret.Items, false)
	case v.Projected != nil:
		for _, source := range v.Projected.Sources {
			c.project(contents, source.Secret.Name, source.Secret.Items, source.Secret.Optional != nil && *source.Secret.Optional)
		}
	case v.CSI != nil:
		return c.secrets["csi "+pod]
	default:
		c.t.Fatalf("the test knows no volume such as %+v", v)
	}
	return contents
}

func (c *cluster) project(into files, secret string, items []corev1.KeyToPath, optional bool) {
	c.t.Helper()
	from, ok := c.secrets[secret]
	if !ok && !optional {
		c.t.Fatalf("there is no Secret %s", secret)
	}
	if len(items) == 0 {
		for name, content := range from {
			into[name] = content
		}
	}
	for _, item := range items {
		if from[item.Key] == nil && !optional {
			c.t.Fatalf("the Secret %s has no %s", secret, item.Key)
		}
		into[item.Path] = from[item.Key]
	}
}

// endpoints returns the addresses to which the Service of the nodes routes.
func (c *cluster) endpoints() (hosts []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range slices.Concat(slices.Collect(maps.Values(c.pods)), c.gone) {
		deleted := p.deleted.Load()
		routed := p.ready.Load() && deleted == 0 || deleted > 0 && time.Since(time.Unix(0, deleted)) < c.late
		if routed && p.spec.Containers[0].Name == "weir" {
			hosts = append(hosts, p.host)
		}
	}
	return hosts
}

// startAll starts all pods of a StatefulSet at once, as podManagementPolicy Parallel does, and waits until they are ready.
func (c *cluster) startAll(set string) {
	c.t.Helper()
	awaitAllReady(c.t, c.launchAll(set))
}

// launchAll starts all pods of a StatefulSet at once.
func (c *cluster) launchAll(set string) (pods []*pod) {
	c.t.Helper()
	for i := range *c.set(set).Spec.Replicas {
		pods = append(pods, c.start(set, int(i)))
	}
	return pods
}

func awaitAllReady(t testing.TB, pods []*pod) {
	t.Helper()
	for _, p := range pods {
		p.awaitReady(t)
	}
}

// certify makes the Secrets of the chart's Certificates, as cert-manager does. Hosts of this machine are added, as nodes are asked
// by these here.
func (c *cluster) certify() (client *tls.Config) {
	c.t.Helper()
	caKey, ca, caPEM := c.authority()
	for _, key := range sorted(c.all) {
		cert, ok := c.all[key].(*certmanagerv1.Certificate)
		if !ok || cert.Spec.IsCA {
			continue
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(mathrand.Int64()), Subject: pkix.Name{CommonName: cert.Spec.CommonName}, NotBefore: time.Now().Add(-time.Hour),
			NotAfter: time.Now().Add(cert.Spec.Duration.Duration), DNSNames: cert.Spec.DNSNames,
		}
		for _, u := range cert.Spec.URIs {
			parsed, err := url.Parse(u)
			if err != nil {
				c.t.Fatal(err)
			}
			template.URIs = append(template.URIs, parsed)
		}
		for _, ip := range append([]string{c.hosts[cert.Name]}, cert.Spec.IPAddresses...) {
			if parsed := net.ParseIP(ip); parsed != nil {
				template.IPAddresses = append(template.IPAddresses, parsed)
			}
		}
		for _, u := range cert.Spec.Usages {
			switch u {
			case certmanagerv1.UsageDigitalSignature:
				template.KeyUsage |= x509.KeyUsageDigitalSignature
			case certmanagerv1.UsageServerAuth:
				template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
			case certmanagerv1.UsageClientAuth:
				template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
			default:
				c.t.Fatalf("the test does not know the usage %s", u)
			}
		}
		key := newKey(c.t)
		der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), caKey)
		if err != nil {
			c.t.Fatal(err)
		}
		keyDER, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			c.t.Fatal(err)
		}
		c.secrets[cert.Spec.SecretName] = files{
			"ca.crt": caPEM, "tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
			"tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
		}
	}
	admin := c.secrets[full+"-admin-tls"]
	pair, err := tls.X509KeyPair(admin["tls.crt"], admin["tls.key"])
	if err != nil {
		c.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}
}

func (c *cluster) authority() (*ecdsa.PrivateKey, *x509.Certificate, []byte) {
	c.t.Helper()
	key := newKey(c.t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		c.t.Fatal(err)
	}
	ca, err := x509.ParseCertificate(der)
	if err != nil {
		c.t.Fatal(err)
	}
	return key, ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
