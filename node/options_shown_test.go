package node

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// valueOf returns the value of an option.
func valueOf(t *testing.T, o Options, name string) Value {
	t.Helper()
	values := o.Values()
	i := slices.IndexFunc(values, func(v Value) bool { return v.Name == name })
	if i < 0 {
		t.Fatalf("there is no option %s", name)
	}
	return values[i]
}

// Values are written as flags take them, with defaults, and it is said which are none.
func TestValuesOfOptions(t *testing.T) {
	o := Options{
		ID: "a", GRPC: "127.0.0.1:7000", Etcd: []string{"http://e1:2379", "e2:2379"}, CounterMemory: 512 << 20, DecisionLogSize: 100<<20 + 1,
		PeerTimeout: 40 * time.Millisecond, RLSNearLimit: 0.5, Insecure: true, TLSClientAuth: "optional",
	}
	for name, want := range map[string]Value{
		"id":                {Text: "a", Changed: true},
		"grpc":              {Text: "127.0.0.1:7000", Changed: true},
		"advertise":         {Text: "127.0.0.1:7000"}, // follows from grpc
		"http":              {Text: "127.0.0.1:8080"},
		"cluster":           {Text: "default"},
		"etcd":              {Text: "e1:2379,e2:2379", Changed: true},
		"counter-memory":    {Text: "512MiB", Changed: true},
		"decision-log-size": {Text: "104857601", Changed: true},
		"peer-timeout":      {Text: "40ms", Changed: true},
		"rls-near-limit":    {Text: "0.5", Changed: true},
		"trace-sample":      {Text: "0.01"},
		"insecure":          {Text: "true", Changed: true},
		"lend-nothing":      {Text: "false"},
		"tls-client-auth":   {Text: "optional"}, // the default, though given
		"tls-ca":            {},
		"rls-ca":            {},
		"xds-node-id":       {Text: "default"},
	} {
		want.Name = name
		if got := valueOf(t, o, name); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// No value of a header, of metadata or in a URL leaves the node.
func TestValuesHaveNoSecrets(t *testing.T) {
	const secret = "s3cr3t"
	o := Options{
		XDSServer: "127.0.0.1:1", XDSHeaders: []string{"authorization:Bearer " + secret, "x-tenant:" + secret + "2"}, XDSMetadata: []string{"zone=" + secret},
		TraceEndpoint: "https://user:" + secret + "@collector:4317/?key=" + secret,
	}
	for _, v := range o.Values() {
		if strings.Contains(v.Text, secret) {
			t.Errorf("--%s shows %s", v.Name, v.Text)
		}
	}
	for name, want := range map[string]string{
		"xds-headers": "authorization:REDACTED,x-tenant:REDACTED", "xds-metadata": "zone=REDACTED", "trace-endpoint": "https://collector:4317/REDACTED",
	} {
		if got := valueOf(t, o, name); got.Text != want || !got.Changed {
			t.Errorf("%+v, want %s", got, want)
		}
	}
}
