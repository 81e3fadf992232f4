package dev

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weirlimit/weir/client"
)

// Etcd is the name of the part that is no node.
const Etcd = "etcd"

// stopPatience is how long a node that is told to stop is waited for.
const stopPatience = 40 * time.Second

// Config says which cluster to run.
type Config struct {
	Nodes   int      // 1 to MaxNodes
	Host    string   // address of loopback that all parts listen on
	Port    int      // the first of the ports, two for each node and one for etcd; 0 looks for free ones
	Binary  string   // weir
	Options []string // flags of weir serve for every node
	Tell    func(line string)
}

// Cluster is an etcd and nodes, each a process of its own. Its methods may be called from several goroutines.
type Cluster struct {
	cfg     Config
	dir     string
	owner   *os.File // says that dir is in use
	starter *starter
	proxy   *Proxy
	etcd    *process
	nodes   []*process
	clients map[string]*client.Node // by node
	ends    chan struct{}           // closed by Close
	wait    sync.WaitGroup          // of the watcher

	mu      sync.Mutex
	changes int           // guarded by mu; how often a command has changed the cluster
	settled string        // guarded by mu; what was told of the cluster, empty while it changes
	told    chan struct{} // guarded by mu; closed when settled changes
}

// Start starts the processes, and returns when etcd answers. Close ends them.
func Start(ctx context.Context, cfg Config) (c *Cluster, err error) {
	ports := 2*cfg.Nodes + 1
	if cfg.Port == 0 {
		if cfg.Port, err = freePorts(cfg.Host, ports); err != nil {
			return nil, err
		}
	} else if err := portsFree(cfg.Host, cfg.Port, ports); err != nil {
		return nil, fmt.Errorf("--port: %d to %d are needed: %w", cfg.Port, cfg.Port+ports-1, err)
	}
	if err := removeStale(os.TempDir()); err != nil {
		cfg.Tell("what an earlier weir dev has left was not removed: " + err.Error())
	}
	dir, err := os.MkdirTemp("", dirPattern)
	if err != nil {
		return nil, err
	}
	owner, err := own(dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c = &Cluster{cfg: cfg, dir: dir, owner: owner, starter: newStarter(), clients: make(map[string]*client.Node), ends: make(chan struct{}), told: make(chan struct{})}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.wait.Go(c.watch)
	return c, nil
}

func (c *Cluster) start(ctx context.Context) (err error) {
	c.etcd = c.newPart(Etcd, at(c.cfg.Host, c.cfg.Port+2*c.cfg.Nodes), "")
	names := map[string]string{c.etcd.address: Etcd}
	for i := range c.cfg.Nodes {
		port := c.cfg.Port + 2*i
		n := c.newPart("node-"+strconv.Itoa(i+1), at(c.cfg.Host, port), at(c.cfg.Host, port+1))
		names[n.address] = n.name
		c.nodes = append(c.nodes, n)
	}
	if c.proxy, err = NewProxy(c.cfg.Host, names); err != nil {
		return err
	}
	c.etcd.args = []string{"dev", "etcd", "--listen", c.etcd.address, "--data-dir", filepath.Join(c.dir, Etcd)}
	if err := c.etcd.start(c.cfg.Binary); err != nil {
		return err
	}
	if err := c.etcdServes(ctx); err != nil {
		return err
	}
	for _, n := range c.nodes {
		n.args = append([]string{"dev", "node", "--proxy", c.proxy.Address()}, c.cfg.Options...)
		n.args = append(n.args, "--id", n.name, "--grpc", n.address, "--http", n.http, "--etcd", c.etcd.address, "--data-dir", filepath.Join(c.dir, n.name))
		if c.clients[n.name], err = client.NewNode(n.address); err != nil {
			return err
		}
		if err := n.start(c.cfg.Binary); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) newPart(name, address, http string) *process {
	return &process{name: name, address: address, http: http, log: filepath.Join(c.dir, name+".log"), starter: c.starter, ended: c.hasEnded, state: Ended}
}

// etcdServes waits until etcd says that it does. It writes one line then.
func (c *Cluster) etcdServes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		if strings.Contains("\n"+c.etcd.tail(tailLines), "\n"+EtcdReady) {
			return nil
		}
		if c.etcd.now() == Ended {
			return fmt.Errorf("etcd has ended: %s", c.etcd.tail(tailLines))
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("start etcd at %s: %w", c.etcd.address, ctx.Err())
		}
	}
}

// EtcdReady begins the line that weir dev etcd writes when it serves.
const EtcdReady = "etcd serves at "

// tailLines is how many lines of a log are shown.
const tailLines = 20

// hasEnded tells of a process that has ended by itself.
func (c *Cluster) hasEnded(p *process, err error) {
	select {
	case <-c.ends:
		return
	default:
	}
	c.changed()
	text := "has ended"
	if err != nil {
		text += ": " + err.Error()
	}
	last := p.tail(1)
	if scanner := bufio.NewScanner(strings.NewReader(last)); scanner.Scan() {
		text += "; its log ends with: " + scanner.Text()
	}
	c.cfg.Tell(p.name + " " + text)
}

// Close kills all processes, and removes what they have written.
func (c *Cluster) Close() error {
	close(c.ends)
	c.wait.Wait()
	var errs []error
	for _, p := range c.parts() {
		if err := p.signal(context.Background(), syscall.SIGKILL, Ended); err != nil && !errors.Is(err, errNotRunning) {
			errs = append(errs, fmt.Errorf("kill %s: %w", p.name, err))
		}
	}
	c.starter.close()
	for _, n := range c.clients {
		errs = append(errs, n.Close())
	}
	if c.proxy != nil {
		errs = append(errs, c.proxy.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(c.dir), c.owner.Close())...)
}

// parts are the nodes and etcd, as far as there are any.
func (c *Cluster) parts() []*process {
	if c.etcd == nil {
		return c.nodes
	}
	return append(slices.Clone(c.nodes), c.etcd)
}

func (c *Cluster) find(name string) (*process, error) {
	var names []string
	for _, p := range c.parts() {
		if p.name == name {
			return p, nil
		}
		names = append(names, p.name)
	}
	return nil, fmt.Errorf("there is no %q, only %s", name, strings.Join(names, ", "))
}

// Kill ends a part as a crash does.
func (c *Cluster) Kill(ctx context.Context, name string) (string, error) {
	return c.signal(ctx, name, syscall.SIGKILL, Ended, "was killed", Runs, Paused)
}

// Stop tells a part to stop, and waits until it has. A node hands its counters over.
func (c *Cluster) Stop(ctx context.Context, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	text, err := c.signal(ctx, name, syscall.SIGTERM, Ended, "has stopped", Runs)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%s has not stopped in %v; kill ends it at once", name, stopPatience)
	}
	return text, err
}

// Pause stops the processor of a part: it keeps its connections, and answers nothing.
func (c *Cluster) Pause(ctx context.Context, name string) (string, error) {
	return c.signal(ctx, name, syscall.SIGSTOP, Paused, "is paused", Runs)
}

// Resume has a paused part go on.
func (c *Cluster) Resume(ctx context.Context, name string) (string, error) {
	return c.signal(ctx, name, syscall.SIGCONT, Runs, "goes on", Paused)
}

// signal sends a signal to a part that is in one of these states.
func (c *Cluster) signal(ctx context.Context, name string, s syscall.Signal, after State, done string, in ...State) (string, error) {
	p, err := c.find(name)
	if err != nil {
		return "", err
	}
	if now := p.now(); !slices.Contains(in, now) {
		return "", fmt.Errorf("%s is %s", name, now)
	}
	defer c.changed()
	if err := p.signal(ctx, s, after); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return name + " " + done, nil
}

// Restart starts a part again that has ended; one that runs is stopped before.
func (c *Cluster) Restart(ctx context.Context, name string) (string, error) {
	p, err := c.find(name)
	if err != nil {
		return "", err
	}
	if p.now() != Ended {
		if _, err := c.Stop(ctx, name); err != nil {
			return "", err
		}
	}
	defer c.changed()
	if err := p.start(c.cfg.Binary); err != nil {
		return "", fmt.Errorf("start %s: %w", name, err)
	}
	return name + " starts again", nil
}

// Log returns the last lines that a part has logged.
func (c *Cluster) Log(name string) (string, error) {
	p, err := c.find(name)
	if err != nil {
		return "", err
	}
	return p.tail(tailLines), nil
}

// Show lists the parts, with what is cut.
func (c *Cluster) Show() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-8s %-8s %-8s %-22s %-22s %s", "PART", "STATE", "PID", "GRPC", "HTTP", "CUT FROM")
	for _, p := range c.parts() {
		http, cut, pid := "-", "-", "-"
		if p.http != "" {
			http = p.http
		}
		if from := c.cutFrom(p); len(from) > 0 {
			cut = strings.Join(from, ",")
		}
		state := p.now()
		if state != Ended {
			pid = strconv.Itoa(p.pid())
		}
		fmt.Fprintf(&b, "\n%-8s %-8s %-8s %-22s %-22s %s", p.name, state, pid, p.address, http, cut)
	}
	return b.String()
}

// Address is the gRPC address of the first of the nodes that run and are cut from the fewest parts, or else of the first.
func (c *Cluster) Address() string {
	best, fewest := c.nodes[0], len(c.parts())
	for _, n := range c.nodes {
		if cuts := len(c.cutFrom(n)); n.now() == Runs && cuts < fewest {
			best, fewest = n, cuts
		}
	}
	return best.address
}

// addresses are those of all nodes.
func (c *Cluster) addresses() (all []string) {
	for _, n := range c.nodes {
		all = append(all, n.address)
	}
	return all
}
