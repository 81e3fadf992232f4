package compose

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/weirlimit/weir/test/process"
)

// image is what the runner knows of an image: its programs, and how it is run.
type image struct {
	programs   map[string]string // path in the image: path on this machine
	libraries  bool              // whether the programs need those of the system
	env        []string
	entrypoint []string
	cmd        []string
	uid, gid   uint32
	dirs       []string // that belong to its user
}

// engine runs the services of a Compose file as processes. Each has a network of its own, with its own address on a bridge, and a file
// system of its own with nothing but the image's programs and the volumes.
type engine struct {
	t        *testing.T
	project  *types.Project
	images   map[string]image // by service; others are not started
	volumes  string           // directory of the named volumes
	bridge   netlink.Link
	services map[string]*service
}

type service struct {
	engine  *engine
	config  types.ServiceConfig
	image   image
	address net.IP
	netns   int
	root    string

	started, healthy chan struct{} // closed for the first start
	stopping         atomic.Bool
	cmd              *exec.Cmd
	ended            chan struct{}
	log              *os.File
}

// newEngine prepares the services that have an image.
func newEngine(t *testing.T, project *types.Project, images map[string]image) *engine {
	e := &engine{t: t, project: project, images: images, volumes: t.TempDir(), services: map[string]*service{}}
	e.bridge = &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "compose"}}
	must(t, netlink.LinkAdd(e.bridge))
	must(t, netlink.AddrAdd(e.bridge, &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(172, 30, 0, 1), Mask: net.CIDRMask(24, 32)}}))
	must(t, netlink.LinkSetUp(e.bridge))
	for i, name := range project.ServiceNames() {
		if img, ok := images[name]; ok {
			e.services[name] = &service{
				engine: e, config: project.Services[name], image: img, address: net.IPv4(172, 30, 0, byte(10+i)),
				started: make(chan struct{}), healthy: make(chan struct{}),
			}
		}
	}
	for _, s := range e.services {
		s.connect()
		s.furnish()
		s.publish()
	}
	return e
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// up starts all services in the order of depends_on, and returns when those that have a health check are healthy.
func (e *engine) up() {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), process.Patience)
	defer cancel()
	var wg sync.WaitGroup
	errs := make(chan error, len(e.services))
	for _, s := range e.services {
		wg.Go(func() {
			if err := s.up(ctx); err != nil {
				errs <- fmt.Errorf("%s: %w", s.config.Name, err)
				cancel()
			}
		})
	}
	wg.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	must(e.t, errors.Join(all...))
}

// up starts the service when those that it depends on are as it wants them, and waits until it is healthy.
func (s *service) up(ctx context.Context) error {
	for name, d := range s.config.DependsOn {
		other := s.engine.services[name]
		if other == nil {
			continue
		}
		done := other.started
		switch d.Condition {
		case types.ServiceConditionStarted:
		case types.ServiceConditionHealthy:
			if other.config.HealthCheck == nil {
				return fmt.Errorf("%s has no health check", name)
			}
			done = other.healthy
		default:
			return fmt.Errorf("the test does not know the condition %s", d.Condition)
		}
		select {
		case <-done:
		case <-ctx.Done():
			return fmt.Errorf("%s is not %s", name, d.Condition)
		}
	}
	if err := s.start(); err != nil {
		return err
	}
	close(s.started)
	if s.config.HealthCheck == nil {
		return nil
	}
	if err := s.awaitHealthy(ctx); err != nil {
		return err
	}
	close(s.healthy)
	return nil
}

// awaitHealthy asks the health check as an engine does while a container starts.
func (s *service) awaitHealthy(ctx context.Context) error {
	h := s.config.HealthCheck
	if len(h.Test) < 2 || h.Test[0] != "CMD" {
		return fmt.Errorf("the test does not know the health check %q", h.Test)
	}
	began := time.Now()
	for failures := uint64(0); ; {
		every := time.Duration(*h.StartInterval)
		if time.Since(began) > time.Duration(*h.StartPeriod) {
			every = time.Duration(*h.Interval)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it is not healthy: %w", ctx.Err())
		case <-s.ended:
			return fmt.Errorf("it has ended: %v", s.cmd.ProcessState)
		case <-time.After(every):
		}
		out, err := s.exec(time.Duration(*h.Timeout), h.Test[1:]...)
		if err == nil {
			return nil
		}
		if time.Since(began) > time.Duration(*h.StartPeriod) {
			if failures++; failures == *h.Retries {
				return fmt.Errorf("it is unhealthy: %w: %s", err, out)
			}
		}
	}
}

// exec runs a command in the service's container, as docker compose exec does.
func (s *service) exec(timeout time.Duration, args ...string) (string, error) {
	out, err := os.CreateTemp(s.engine.t.TempDir(), "exec")
	if err != nil {
		return "", err
	}
	defer out.Close()
	cmd, err := s.command(args)
	if err != nil {
		return "", err
	}
	cmd.Stdout, cmd.Stderr = out, out
	if err := s.run(cmd); err != nil {
		return "", err
	}
	late := time.AfterFunc(timeout, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	err = cmd.Wait()
	text, _ := os.ReadFile(out.Name())
	return string(text), err
}

// connect gives the service its network.
func (s *service) connect() {
	t := s.engine.t
	t.Helper()
	fds := make(chan int)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		fd := -1
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Errorf("a network for %s: %v", s.config.Name, err)
		} else if fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			t.Error(err)
		}
		fds <- fd
	}()
	if s.netns = <-fds; s.netns < 0 {
		t.FailNow()
	}
	name := "s" + strconv.Itoa(int(s.address.To4()[3]))
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MasterIndex: s.engine.bridge.Attrs().Index}, PeerName: "eth0", PeerNamespace: netlink.NsFd(s.netns)}))
	outer, err := netlink.LinkByName(name)
	must(t, err)
	must(t, netlink.LinkSetUp(outer))
	inside, err := netlink.NewHandleAt(netns.NsHandle(s.netns))
	must(t, err)
	defer inside.Close()
	for _, name := range []string{"lo", "eth0"} {
		link, err := inside.LinkByName(name)
		must(t, err)
		if name == "eth0" {
			must(t, inside.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: s.address, Mask: net.CIDRMask(24, 32)}}))
		}
		must(t, inside.LinkSetUp(link))
	}
}

// furnish makes the service's file system, by its image and its volumes.
func (s *service) furnish() {
	t := s.engine.t
	t.Helper()
	s.root = filepath.Join(os.Getenv(insideVariable), s.config.Name)
	must(t, os.Mkdir(s.root, 0o755))
	must(t, unix.Mount("weir", s.root, "tmpfs", 0, "mode=0755"))
	var hosts strings.Builder
	hosts.WriteString("127.0.0.1 localhost\n")
	for name, other := range s.engine.services {
		fmt.Fprintf(&hosts, "%s %s\n", other.address, name)
	}
	for path, text := range map[string]string{"/etc/hosts": hosts.String(), "/etc/nsswitch.conf": "hosts: files\n", "/etc/resolv.conf": ""} {
		must(t, os.MkdirAll(filepath.Join(s.root, filepath.Dir(path)), 0o755))
		must(t, os.WriteFile(filepath.Join(s.root, path), []byte(text), 0o644)) //nolint:gosec // as in a container
	}
	must(t, os.Mkdir(filepath.Join(s.root, "tmp"), 0o755))
	must(t, os.Chmod(filepath.Join(s.root, "tmp"), 0o777|os.ModeSticky))
	must(t, os.Mkdir(filepath.Join(s.root, "proc"), 0o755))
	must(t, unix.Mount("proc", filepath.Join(s.root, "proc"), "proc", 0, ""))
	for _, device := range []string{"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"} {
		s.bind(device, device, false)
	}
	for path, program := range s.image.programs {
		s.bind(program, path, true)
	}
	if s.image.libraries {
		for _, name := range []string{"/usr/lib", "/usr/lib64", "/lib", "/lib64"} {
			if target, err := os.Readlink(name); err == nil {
				must(t, os.Symlink(target, filepath.Join(s.root, name)))
			} else if _, err := os.Stat(name); err == nil {
				s.bind(name, name, true)
			}
		}
	}
	for _, dir := range s.image.dirs {
		must(t, os.MkdirAll(filepath.Join(s.root, dir), 0o755))
		must(t, os.Chown(filepath.Join(s.root, dir), int(s.image.uid), int(s.image.gid)))
	}
	for _, v := range s.config.Volumes {
		source := v.Source
		switch v.Type {
		case types.VolumeTypeBind:
		case types.VolumeTypeVolume:
			source = s.volume(v)
		default:
			t.Fatalf("%s: the test knows no volume of type %s", s.config.Name, v.Type)
		}
		s.bind(source, v.Target, v.ReadOnly)
	}
	if s.config.ReadOnly {
		must(t, unix.Mount("", s.root, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	}
}

// volume returns the directory of a named volume. A new one belongs to the owner of the image's directory.
func (s *service) volume(v types.ServiceVolumeConfig) string {
	t := s.engine.t
	t.Helper()
	dir := filepath.Join(s.engine.volumes, v.Source)
	if err := os.Mkdir(dir, 0o755); errors.Is(err, os.ErrExist) {
		return dir
	} else if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(s.image.dirs, v.Target) {
		must(t, os.Chown(dir, int(s.image.uid), int(s.image.gid)))
	}
	return dir
}

// bind shows a file or directory of this machine at a path of the service.
func (s *service) bind(source, target string, readOnly bool) {
	t := s.engine.t
	t.Helper()
	at := filepath.Join(s.root, target)
	info, err := os.Stat(source)
	must(t, err)
	if info.IsDir() {
		must(t, os.MkdirAll(at, 0o755))
	} else {
		must(t, os.MkdirAll(filepath.Dir(at), 0o755))
		must(t, os.WriteFile(at, nil, 0o644)) //nolint:gosec // a place to mount at
	}
	if err := unix.Mount(source, at, "", unix.MS_BIND, ""); err != nil {
		t.Fatalf("%s: mount %s at %s: %v", s.config.Name, source, target, err)
	}
	if readOnly {
		must(t, unix.Mount("", at, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	}
}

// publish forwards the published ports.
func (s *service) publish() {
	t := s.engine.t
	t.Helper()
	for _, p := range s.config.Ports {
		l, err := net.Listen("tcp", net.JoinHostPort(p.HostIP, p.Published))
		must(t, err)
		t.Cleanup(func() { _ = l.Close() })
		target := net.JoinHostPort(s.address.String(), strconv.Itoa(int(p.Target)))
		go func() {
			for {
				from, err := l.Accept()
				if err != nil {
					return
				}
				go forward(from, target)
			}
		}()
	}
}

func forward(from net.Conn, target string) {
	defer from.Close()
	to, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer to.Close()
	done := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			done <- struct{}{}
		}()
	}
	<-done
}

// command returns a command in the service's file system, as its user, with its environment.
func (s *service) command(args []string) (*exec.Cmd, error) {
	env := append([]string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/", "HOSTNAME=" + s.config.Name}, s.image.env...)
	for name, value := range s.config.Environment {
		if value != nil {
			env = append(env, name+"="+*value)
		}
	}
	path := args[0]
	if !strings.Contains(path, "/") {
		for _, dir := range []string{"/usr/local/bin", "/usr/bin", "/bin"} {
			if _, err := os.Stat(filepath.Join(s.root, dir, path)); err == nil {
				path = filepath.Join(dir, path)
				break
			}
		}
	}
	if _, err := os.Stat(filepath.Join(s.root, path)); err != nil {
		return nil, fmt.Errorf("the image %s has no program %s", s.config.Image, args[0])
	}
	return &exec.Cmd{
		Path: path, Args: args, Dir: "/", Env: env,
		SysProcAttr: &syscall.SysProcAttr{Chroot: s.root, Credential: &syscall.Credential{Uid: s.image.uid, Gid: s.image.gid}},
	}, nil
}

// run starts a command in the service's network.
func (s *service) run(cmd *exec.Cmd) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked, as above
		err := unix.Setns(s.netns, unix.CLONE_NEWNET)
		if err == nil {
			err = cmd.Start()
		}
		done <- err
	}()
	return <-done
}

// start starts the service's process, by the image and the file. It is killed when the test ends.
func (s *service) start() error {
	args := s.config.Entrypoint
	if args == nil {
		args = s.image.entrypoint
	}
	if s.config.Command != nil {
		args = slices.Concat(args, s.config.Command)
	} else {
		args = slices.Concat(args, s.image.cmd)
	}
	cmd, err := s.command(args)
	if err != nil {
		return err
	}
	if s.log == nil {
		if s.log, err = os.CreateTemp(s.engine.t.TempDir(), "log"); err != nil {
			return err
		}
		s.engine.t.Cleanup(s.showLog)
	}
	cmd.Stdout, cmd.Stderr = s.log, s.log
	if err := s.run(cmd); err != nil {
		return fmt.Errorf("start %q: %w", args, err)
	}
	ended := make(chan struct{})
	s.cmd, s.ended = cmd, ended
	s.stopping.Store(false)
	go func() {
		_ = cmd.Wait()
		if !s.stopping.Load() {
			s.engine.t.Errorf("%s has ended: %v", s.config.Name, cmd.ProcessState)
		}
		close(ended)
	}()
	s.engine.t.Cleanup(func() {
		s.stopping.Store(true)
		_ = cmd.Process.Kill()
		<-ended
	})
	return nil
}

func (s *service) showLog() {
	if s.engine.t.Failed() {
		text, _ := os.ReadFile(s.log.Name())
		s.engine.t.Logf("log of %s:\n%s", s.config.Name, text[max(0, len(text)-1000):])
	}
	_ = s.log.Close()
}

// kill is docker compose kill.
func (e *engine) kill(name string) {
	e.t.Helper()
	s := e.services[name]
	s.stopping.Store(true)
	must(e.t, s.cmd.Process.Kill())
	<-s.ended
}

// restart is docker compose start --wait of a service that was killed or stopped.
func (e *engine) restart(name string) {
	e.t.Helper()
	s := e.services[name]
	must(e.t, s.start())
	ctx, cancel := context.WithTimeout(e.t.Context(), process.Patience)
	defer cancel()
	must(e.t, s.awaitHealthy(ctx))
}

// stop is docker compose stop: SIGTERM, and SIGKILL after the grace period, which fails the test.
func (e *engine) stop(name string) {
	e.t.Helper()
	s := e.services[name]
	s.stopping.Store(true)
	grace := 10 * time.Second
	if s.config.StopGracePeriod != nil {
		grace = time.Duration(*s.config.StopGracePeriod)
	}
	must(e.t, s.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-s.ended:
		if code := s.cmd.ProcessState.ExitCode(); code != 0 {
			e.t.Errorf("%s has ended with %d", name, code)
		}
	case <-time.After(grace):
		e.t.Errorf("%s has not ended after %v", name, grace)
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
}
