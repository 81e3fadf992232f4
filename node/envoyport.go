package node

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirlimit/weir/api"
	"github.com/weirlimit/weir/internal/certs"
)

// rlsServer serves Envoy's API alone, with a certificate that need not name this node, as gateways give it to a rate
// limit service.
type rlsServer struct {
	grpc *grpc.Server
	cert *certs.EnvoyPort
}

// newRLSServer returns the server of the port for Envoy.
func (n *node) newRLSServer() (*rlsServer, error) {
	o := n.opts
	cert, err := certs.OpenEnvoyPort(certs.Files{Cert: o.RLSCert, Key: o.RLSKey, CA: o.RLSCA}, o.RLSClientName, n.log)
	if err != nil {
		return nil, err
	}
	if o.RLSCA == "" && exposed(o.RLSListen) {
		n.log.Warn("everybody who reaches the port for Envoy may use up limits: there is no --rls-ca", "rls", o.RLSListen)
	}
	n.exportExpiry("rls-cert", func() time.Time { ends, _ := cert.State(); return ends })
	s := &rlsServer{newGRPCServer(grpc.Creds(n.limiter.Credentials(cert.Credentials())), n.limiter.InTapHandle(n.limiter.Tap), grpc.NumStreamWorkers(streamWorkers)), cert}
	n.closers = append(n.closers, s.grpc.Stop)
	api.RegisterEnvoy(s.grpc, n.limiter)
	healthpb.RegisterHealthServer(api.Bounded(s.grpc), &n.healthWatches)
	return s, api.CheckServices(s.grpc)
}

// stop lets calls under way finish until patience ends.
func (s *rlsServer) stop(patience context.Context) {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.grpc.GracefulStop()
	}()
	select {
	case <-stopped:
	case <-patience.Done():
		s.grpc.Stop()
		<-stopped
	}
}

func (o Options) badRLS() string {
	if o.RLSListen == "" {
		for _, other := range []struct{ option, value string }{
			{"rls-cert", o.RLSCert}, {"rls-key", o.RLSKey}, {"rls-ca", o.RLSCA}, {"rls-client-name", o.RLSClientName},
		} {
			if other.value != "" {
				return fmt.Sprintf("--%s needs --rls-listen as well", other.option)
			}
		}
		return ""
	}
	var missing []string
	for _, f := range []struct{ option, path string }{{"--rls-cert", o.RLSCert}, {"--rls-key", o.RLSKey}} {
		if f.path == "" {
			missing = append(missing, f.option)
		}
	}
	switch problem := badHostPort(o.RLSListen, 0); {
	case problem != "":
		return problem
	case len(missing) > 0:
		return fmt.Sprintf("needs %s as well; without TLS, Envoy asks at --grpc", strings.Join(missing, " and "))
	case o.RLSClientName != "" && o.RLSCA == "":
		return "--rls-client-name needs --rls-ca as well"
	}
	return ""
}

// rlsProblems says what is wrong with the certificate for Envoy.
func (n *node) rlsProblems(now time.Time) (problems []problem) {
	if n.rls == nil {
		return nil
	}
	if n.opts.RLSCA == "" && exposed(n.opts.RLSListen) {
		problems = append(problems, problemAbout("--rls-listen has no --rls-ca", "everybody who reaches %s may use up limits: --rls-listen has no --rls-ca", n.opts.RLSListen))
	}
	ends, err := n.rls.cert.State()
	if err != nil {
		problems = append(problems, problemAbout("the files of --rls-cert cannot be used", "the files of --rls-cert, --rls-key and --rls-ca as they are now cannot be used, those read before stay in force: %v", err))
	}
	if ends.Sub(now) < expiresSoon {
		problems = append(problems, problemAbout("the certificate of --rls-cert ends", "the certificate of --rls-cert ends at %v: put a new one in its place", ends.UTC().Format(time.RFC3339)))
	}
	return problems
}

// listenRLS takes the port for Envoy.
func (n *node) listenRLS(open func(name, address string, most int) (net.Listener, error)) (err error) {
	if n.opts.RLSListen == "" {
		return nil
	}
	if n.rlsListener, err = open("rls-listen", n.opts.RLSListen, maxGRPCConnections); err == nil {
		n.opts.RLSListen = n.rlsListener.Addr().String()
	}
	return err
}
