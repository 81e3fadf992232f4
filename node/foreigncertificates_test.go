package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/cluster/etcd"
)

// A node whose certificates are of another CA than those of a node that runs does not take the id of that one: it could not join in its place.
func TestForeignCertificatesTakeNoID(t *testing.T) {
	t.Parallel()
	for name, trustsBoth := range map[string]bool{"it trusts another CA": false, "it trusts both": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := etcdAt(t, "127.0.0.1:0", t.TempDir())
			opts := withTLS(t, testOptions(t))
			opts.Etcd = []string{server.Endpoint()}
			info, _, ended := start(t, opts)
			foreign := withTLS(t, testOptions(t))
			if foreign.Etcd = opts.Etcd; trustsBoth {
				foreign.TLSCA = bundle(t, opts.TLSCA, foreign.TLSCA)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := Run(ctx, foreign, quiet(), func(Info) { cancel() })
			if !errors.Is(err, errTaken) || !strings.Contains(err.Error(), info.GRPC) || !strings.Contains(err.Error(), "--tls-ca") {
				t.Errorf("%v, want that the id is taken by %s, and what to look at", err, info.GRPC)
			}
			r, err := etcd.Open(t.Context(), etcd.Config{Endpoints: opts.Etcd, Cluster: opts.Cluster, Logger: quiet()})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			nodes, err := r.Nodes(t.Context())
			if err != nil || len(nodes) != 1 || nodes[0].Address != info.GRPC || nodes[0].Incarnation != 1 {
				t.Errorf("etcd has %+v (%v), want incarnation 1 at %s", nodes, err, info.GRPC)
			}
			select {
			case err := <-ended:
				t.Errorf("the node that runs has ended: %v", err)
			default:
			}
		})
	}
}

// A node with certificates of another CA is told so by the doctor, and what to do.
func TestDoctorOfForeignCertificates(t *testing.T) {
	t.Parallel()
	server := etcdAt(t, "127.0.0.1:0", t.TempDir())
	opts := withTLS(t, testOptions(t))
	opts.Etcd = []string{server.Endpoint()}
	info, _, _ := start(t, opts)
	foreign := testOptions(t)
	foreign.ID, foreign.Etcd = "b", opts.Etcd
	findings := Examine(t.Context(), withTLS(t, foreign))
	i := slices.IndexFunc(findings, func(f Finding) bool { return f.Subject == "node a" })
	if i < 0 {
		t.Fatalf("nothing of node a: %+v", findings)
	}
	f := findings[i]
	if f.Severity != Bad || !strings.Contains(f.Text, "answers at "+info.GRPC+", and one of the two does not accept the certificate of the other: ") || !strings.Contains(f.Advice, "ca.crt") {
		t.Errorf("%+v", f)
	}
}

// bundle returns a file with the contents of others.
func bundle(t *testing.T, files ...string) string {
	t.Helper()
	var all []byte
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, content...)
	}
	name := filepath.Join(t.TempDir(), "bundle.crt")
	if err := os.WriteFile(name, all, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
