package etcd

import (
	"context"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
)

// frugalEtcd runs an etcd like StartServer's, except that it hashes passwords at the lowest cost, and returns its endpoint. At the usual
// cost each login takes a tenth of a second of processor time, and half a second with the race detector: on a busy machine Open gives up.
func frugalEtcd(t *testing.T) (endpoint string) {
	t.Helper()
	cfg := memberConfig(t.Context(), "127.0.0.1", "0", ServerConfig{Dir: t.TempDir()}, newLastWords())
	cfg.BcryptCost = 4
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(patience):
		t.Fatal("etcd is not ready")
	}
	return server.Clients[0].Addr().String()
}

// MayWrite knows a user who may only read from one who may write, and writes nothing itself.
func TestMayWrite(t *testing.T) {
	t.Parallel()
	endpoint := frugalEtcd(t)
	admin := rawClient(t, endpoint)
	keys := keysOf("test")
	allow := func(user string, access clientv3.PermissionType) func(context.Context) error {
		return func(ctx context.Context) error {
			if _, err := admin.RoleAdd(ctx, user); err != nil {
				return err
			}
			if _, err := admin.RoleGrantPermission(ctx, user, keys.root, clientv3.GetPrefixRangeEnd(keys.root), access); err != nil {
				return err
			}
			if _, err := admin.UserAdd(ctx, user, "password"); err != nil {
				return err
			}
			_, err := admin.UserGrantRole(ctx, user, user)
			return err
		}
	}
	for _, step := range []func(context.Context) error{
		allow("reader", clientv3.PermissionType(clientv3.PermRead)), allow("writer", clientv3.PermissionType(clientv3.PermReadWrite)),
		func(ctx context.Context) error { _, err := admin.UserAdd(ctx, "root", "password"); return err },
		func(ctx context.Context) error { _, err := admin.UserGrantRole(ctx, "root", "root"); return err },
		func(ctx context.Context) error { _, err := admin.AuthEnable(ctx); return err },
	} {
		if err := step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for user, want := range map[string]string{"reader": "writing below /weir/test/: etcdserver: permission denied", "writer": ""} {
		r, err := Open(t.Context(), Config{Endpoints: []string{endpoint}, Cluster: "test", User: user, Password: "password"})
		if err != nil {
			t.Fatal(err)
		}
		err = r.MayWrite(t.Context())
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", user, err, want)
		}
		if _, found, err := r.ReadParams(t.Context()); found || err != nil {
			t.Errorf("%s: parameters are stored: %v, %v", user, found, err)
		}
		r.Close()
	}
}
