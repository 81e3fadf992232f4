package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/weirlimit/weir/cluster/etcd"
	"github.com/weirlimit/weir/internal/certs"
)

// maxPassword bounds a password for etcd, in bytes.
const maxPassword = 1 << 10

// httpsScheme is what endpoints of an etcd with TLS begin with.
const httpsScheme = "https://"

// etcdHasTLS reports whether the endpoints of etcd ask for TLS.
func (o Options) etcdHasTLS() bool {
	return slices.ContainsFunc(o.Etcd, func(endpoint string) bool { return strings.HasPrefix(endpoint, httpsScheme) })
}

// etcdEndpoints returns the endpoints as host:port.
func (o Options) etcdEndpoints() (endpoints []string) {
	for _, endpoint := range o.Etcd {
		endpoints = append(endpoints, strings.TrimPrefix(endpoint, httpsScheme))
	}
	return endpoints
}

func (o Options) badEtcd() string {
	endpoints := o.etcdEndpoints()
	if len(endpoints) > etcd.MaxEndpoints {
		return fmt.Sprintf("has %d endpoints, at most %d are allowed", len(endpoints), etcd.MaxEndpoints)
	}
	for i, endpoint := range endpoints {
		host, _, _ := net.SplitHostPort(endpoint)
		problem := badHostPort(endpoint, 1)
		switch {
		case problem != "":
			return problem
		case isWildcard(host):
			return fmt.Sprintf("%s names no host to connect to", endpoint)
		case slices.Contains(endpoints[:i], endpoint):
			return fmt.Sprintf("%s is listed twice", endpoint)
		case o.etcdHasTLS() && !strings.HasPrefix(o.Etcd[i], httpsScheme):
			return fmt.Sprintf("%s is without TLS and others are with it; allowed is https:// before all endpoints, or none", endpoint)
		}
	}
	return ""
}

// badEtcdFiles checks the options that say how to connect to an etcd. They are all for an etcd of the user's own.
func (o Options) badEtcdFiles() string {
	for _, f := range []struct{ option, path string }{{"etcd-cert", o.EtcdCert}, {"etcd-key", o.EtcdKey}, {"etcd-ca", o.EtcdCA}} {
		if f.path != "" && !o.etcdHasTLS() {
			return fmt.Sprintf("--%s needs endpoints with TLS, as --etcd https://HOST:2379", f.option)
		}
	}
	switch {
	case o.EtcdCert != "" && o.EtcdKey == "":
		return "--etcd-cert needs --etcd-key as well"
	case o.EtcdKey != "" && o.EtcdCert == "":
		return "--etcd-key needs --etcd-cert as well"
	}
	return ""
}

func (o Options) badEtcdUser() string {
	plain := func(endpoint string) bool {
		host, _, _ := net.SplitHostPort(endpoint)
		return !isLoopback(host)
	}
	switch {
	case o.EtcdUser != "" && o.EtcdPasswordFile == "":
		return "--etcd-user needs --etcd-password-file as well"
	case o.EtcdUser == "" && o.EtcdPasswordFile != "":
		return "--etcd-password-file needs --etcd-user as well"
	case o.EtcdUser != "" && len(o.Etcd) == 0:
		return "--etcd-user is for an etcd of your own: pass --etcd"
	case o.EtcdUser != "" && !o.Insecure && !o.etcdHasTLS() && slices.ContainsFunc(o.Etcd, plain):
		return "the password would go over the network without TLS; pass https:// endpoints, or --insecure if the network is trusted"
	}
	return ""
}

func (o Options) badEtcdListen() string {
	problem := badHostPort(o.EtcdListen, 0)
	host, port, _ := net.SplitHostPort(o.EtcdListen)
	if problem != "" || len(o.Etcd) > 0 || o.Insecure || o.TLSCert != "" || isLoopback(host) {
		return problem
	}
	return fmt.Sprintf("%s is reachable from other machines, and there is no TLS; pass --tls-cert, --tls-key and --tls-ca, listen on 127.0.0.1:%s, "+
		"pass --etcd with an etcd of your own, or pass --insecure if the network is trusted", o.EtcdListen, port)
}

// openRegistry connects to etcd, of which it starts one if none is given.
func (n *node) openRegistry(ctx context.Context) error {
	cfg := etcd.Config{
		Endpoints: n.opts.etcdEndpoints(), Cluster: n.opts.Cluster, Known: n.state.Found(), Dial: n.network.Dial,
		Wait: n.opts.EtcdWait, Logger: n.log, Metrics: n.metrics,
	}
	if err := n.secureEtcd(&cfg); err != nil {
		return err
	}
	if len(cfg.Endpoints) == 0 {
		if err := n.startEtcd(ctx); err != nil {
			return err
		}
		cfg.Endpoints, cfg.Dial = []string{n.etcd.Endpoint()}, nil
	}
	registry, err := etcd.Open(ctx, cfg)
	if err != nil {
		return err
	}
	if n.onlyHere(cfg.Endpoints) {
		n.log.Warn("others may not reach this node: set advertise to an address of this machine",
			"advertise", n.opts.Advertise, "etcd", strings.Join(cfg.Endpoints, ","))
	}
	n.registry = registry
	n.closers = append(n.closers, registry.Close)
	return n.verify(ctx)
}

// startEtcd starts the etcd in this process. Beyond loopback it has the certificate of this node.
func (n *node) startEtcd(ctx context.Context) error {
	cfg := etcd.ServerConfig{Listen: n.opts.EtcdListen, Dir: filepath.Join(n.opts.DataDir, "etcd"), Logger: n.log}
	host, _, err := net.SplitHostPort(cfg.Listen)
	scheme := ""
	if err == nil && n.certs != nil && !isLoopback(host) {
		cfg.TLS, scheme = n.certs.Etcd(), httpsScheme
	}
	server, err := etcd.StartServer(ctx, cfg)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w; to join the node that runs there, pass --etcd %s%s", err, scheme, n.opts.EtcdListen)
	}
	if err != nil {
		return err
	}
	n.etcd = server
	n.closers = append(n.closers, server.Close)
	n.opts.Etcd = []string{scheme + server.Address()}
	return nil
}

// RunEtcd runs an etcd of one member without a node, until ctx ends, which is no error. It listens at an address, as host:port, keeps
// its data in a directory, and calls ready with the address once it serves.
func RunEtcd(ctx context.Context, listen, dir string, ready func(address string)) error {
	server, err := etcd.StartServer(ctx, etcd.ServerConfig{Listen: listen, Dir: dir})
	if err != nil {
		return err
	}
	defer server.Close()
	ready(server.Address())
	select {
	case err := <-server.Err():
		return err
	case <-ctx.Done():
		return nil
	}
}

// secureEtcd reads how to connect to an etcd with TLS or with users. What is not given is this node's own
// certificate and the CA of its cluster.
func (n *node) secureEtcd(cfg *etcd.Config) (err error) {
	if n.opts.EtcdUser != "" {
		cfg.User = n.opts.EtcdUser
		if cfg.Password, err = readPassword(n.opts.EtcdPasswordFile); err != nil {
			return &OptionError{"etcd-password-file", err.Error()}
		}
	}
	if !n.opts.etcdHasTLS() {
		return nil
	}
	files := certs.Files{Cert: n.opts.EtcdCert, Key: n.opts.EtcdKey, CA: n.opts.EtcdCA}
	if files == (certs.Files{}) {
		files = certs.Files{Cert: n.opts.TLSCert, Key: n.opts.TLSKey, CA: n.opts.TLSCA}
	}
	cfg.Credentials, err = certs.EtcdCredentials(files, n.log)
	return err
}

// readPassword reads a password, without the end of its line.
func readPassword(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxPassword+1))
	password := strings.TrimRight(string(text), "\r\n")
	switch {
	case err != nil:
		return "", err
	case len(text) > maxPassword:
		return "", fmt.Errorf("%s has more than %d bytes", path, maxPassword)
	case password == "":
		return "", fmt.Errorf("%s is empty", path)
	}
	return password, nil
}

// onlyHere reports whether etcd is elsewhere, and the address that others are given
// for this node is loopback.
func (n *node) onlyHere(etcd []string) bool {
	loopback := func(address string) bool {
		host, _, err := net.SplitHostPort(address)
		return err == nil && isLoopback(host)
	}
	return loopback(n.opts.Advertise) && !slices.ContainsFunc(etcd, loopback)
}
