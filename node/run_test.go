package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/etcd"
)

// A node that is stopped, and one that could not start, leave ports and data
// directory to the next.
func TestRunLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	opts := testOptions(t)
	opts.GRPC, opts.HTTP = quietAddress(), quietAddress()
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		ready := make(chan Info, 1)
		go func() { ended <- Run(ctx, opts, quiet(), func(i Info) { ready <- i }) }()
		var info Info
		select {
		case info = <-ready:
		case err := <-ended:
			t.Fatal(err)
		}
		for path, want := range map[string]string{
			"/healthz":   "ok\n",
			"/readyz":    "ready\n",
			"/metrics":   "weir_view_number",
			"/v1/health": `"ready":true,"degraded":false,"reasons":[]`,
		} {
			resp, err := http.Get("http://" + info.HTTP + path)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
				t.Errorf("%s: %s %v\n%s", path, resp.Status, err, body)
			}
		}
		broken := opts
		broken.GRPC, broken.HTTP, broken.Rules = "127.0.0.1:0", "127.0.0.1:0", "/no/such/rules.yaml"
		if err := Run(ctx, broken, quiet(), nil); err == nil || !strings.Contains(err.Error(), "/no/such/rules.yaml") {
			t.Errorf("%v, want an error about the rules", err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("stopped: %v", err)
		}
		opts.GRPC, opts.HTTP = info.GRPC, info.HTTP // the same ports again
	}
}

func TestRunThatIsStoppedBeforeItIsReady(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	opts := Options{GRPC: "127.0.0.1:0", HTTP: "127.0.0.1:0", EtcdListen: "127.0.0.1:0", DataDir: t.TempDir()}
	if err := Run(ctx, opts, quiet(), func(Info) { t.Error("ready") }); err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("%v, want context canceled", err)
	}
}

// A node ends with an error when another one is started under its id.
func TestRunEndsWhenSuperseded(t *testing.T) {
	t.Parallel()
	info, _, ended := start(t, testOptions(t))
	r, err := etcd.Open(t.Context(), etcd.Config{Endpoints: []string{info.Etcd}, Cluster: "default", Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	incarnation, err := r.NextIncarnation(t.Context(), info.ID)
	if err != nil {
		t.Fatal(err)
	}
	r.Announce(cluster.Node{ID: info.ID, Address: "127.0.0.1:1", Incarnation: incarnation, State: cluster.Ready})
	go func() { _ = r.Run(t.Context(), func(cluster.RegistryContent) {}) }()
	if err := <-ended; !errors.Is(err, etcd.ErrSuperseded) || !strings.Contains(err.Error(), "node "+info.ID) {
		t.Errorf("%v, want %v", err, etcd.ErrSuperseded)
	}
}

// Clients that stay do not keep a node from stopping: they are cut off.
func TestStopCutsOffOpenConnections(t *testing.T) {
	t.Parallel()
	info, stop, ended := start(t, testOptions(t))
	watch, err := healthpb.NewHealthClient(dial(t, info)).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := watch.Recv(); err != nil || first.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("ready, and yet %v %v", first, err)
	}
	half, err := net.Dial("tcp", info.HTTP)
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	const request = "POST /v1/check HTTP/1.1\r\nHost: weir\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n"
	if _, err := fmt.Fprint(half, request); err != nil {
		t.Fatal(err)
	}
	const asked = "HTTP/1.1 100 Continue\r\n\r\n" // the handler waits for the body
	if _, err := io.ReadFull(half, make([]byte, len(asked))); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	var last healthpb.HealthCheckResponse_ServingStatus
	for resp, err := watch.Recv(); err == nil; resp, err = watch.Recv() {
		last = resp.GetStatus()
	}
	if last != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("the last word was %v", last)
	}
	if body, err := io.ReadAll(half); strings.Contains(string(body), "200 OK") {
		t.Errorf("half a request was answered: %q, %v", body, err)
	}
}

// An etcd that is gone when a node stops does not keep it.
func TestStopWithoutEtcd(t *testing.T) {
	t.Parallel()
	server, err := etcd.StartServer(t.Context(), etcd.ServerConfig{Listen: "127.0.0.1:0", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	opts := testOptions(t)
	opts.Etcd = []string{server.Endpoint()}
	info, stop, ended := start(t, opts)
	if info.EmbeddedEtcd || info.Etcd != server.Endpoint() {
		t.Errorf("%+v", info)
	}
	server.Close()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestUnitWaitsForTheStop: systemd kills no node before it could hand its counters over and write them to disk.
func TestUnitWaitsForTheStop(t *testing.T) {
	unit, err := os.ReadFile("../deploy/systemd/weir.service")
	if err != nil {
		t.Fatal(err)
	}
	const toWrite = time.Minute // a snapshot of some hundred million counters
	least := leavePatience + handOverPatience + leavePatience + drainPatience + maxAuthDelay + toWrite
	value := regexp.MustCompile(`(?m)^TimeoutStopSec=(\d+)min$`).FindSubmatch(unit)
	if value == nil {
		t.Fatal("the unit has no TimeoutStopSec in minutes")
	}
	if minutes, err := strconv.Atoi(string(value[1])); err != nil || time.Duration(minutes)*time.Minute < least {
		t.Errorf("TimeoutStopSec=%smin, and a stop takes up to %v", value[1], least)
	}
}

// A node whose port breaks ends, and says why.
func TestRunEndsWithItsServers(t *testing.T) {
	t.Parallel()
	for name, which := range map[string]func(*node) io.Closer{
		"gRPC": func(n *node) io.Closer { return n.grpcListener },
		"HTTP": func(n *node) io.Closer { return n.httpListener },
	} {
		t.Run(name, func(t *testing.T) {
			n, err := build(t.Context(), Network{}, testOptions(t), quiet())
			if err != nil {
				t.Fatal(err)
			}
			defer n.close()
			_ = which(n).Close()
			if err := n.run(t.Context(), func(Info) {}); !errors.Is(err, net.ErrClosed) {
				t.Errorf("%v, want %v", err, net.ErrClosed)
			}
		})
	}
}
