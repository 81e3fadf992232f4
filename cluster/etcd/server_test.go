package etcd

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

func TestServerRestartKeepsData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	began := time.Now()
	listen := "127.0.0.1:0"
	if runtime.GOOS == "linux" {
		listen = "127.0.0.77:0" // an address whose ports no process takes in between
	}
	s := startServer(t, listen, dir)
	t.Logf("started on a fresh directory in %v", time.Since(began))
	c := rawClient(t, s.Endpoint())
	put(t, c, "k", "v")
	<-c.Watch(t.Context(), "k", clientv3.WithCreatedNotify()) // must not delay Close
	began = time.Now()
	s.Close()
	s.Close()
	if took := time.Since(began); took >= closeTimeout {
		t.Errorf("Close took %v", took)
	}
	if _, open := <-s.Err(); open {
		t.Error("Err yields an error after Close")
	}

	began = time.Now()
	s = startServer(t, s.Endpoint(), dir) // and the same port
	t.Logf("started on a used directory in %v", time.Since(began))
	resp, err := rawClient(t, s.Endpoint()).Get(t.Context(), "k")
	if err != nil || len(resp.Kvs) != 1 || string(resp.Kvs[0].Value) != "v" {
		t.Fatalf("after the restart: %v, %v", resp, err)
	}
}

func TestServerRefuses(t *testing.T) {
	t.Parallel()
	running := t.TempDir()
	s := startServer(t, "127.0.0.1:0", running)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	foreign := t.TempDir() // another etcd has it
	db := openDB(t, foreign)
	defer db.Close()
	broken := t.TempDir()
	writeFile(t, filepath.Join(broken, "member", "snap", "db"), "this is no database")

	for _, c := range []struct{ listen, dir, want string }{
		{s.Endpoint(), t.TempDir(), "etcd: listen on " + s.Endpoint() + ": address already in use"},
		{"192.0.2.1:0", t.TempDir(), "etcd: listen on 192.0.2.1:0: cannot assign requested address"},
		{"nonsense", t.TempDir(), `etcd: listen on "nonsense": not host:port`},
		{"127.0.0.1:http", t.TempDir(), `etcd: listen on "127.0.0.1:http": port "http" is not between 0 and 65535`},
		{"127.0.0.1:65536", t.TempDir(), `etcd: listen on "127.0.0.1:65536": port "65536" is not between 0 and 65535`},
		{"127.0.0.1:0", "", "etcd: data directory is not given"},
		{"127.0.0.1:0", running, "etcd: data directory " + running + ": in use by another process; stop the node that runs there, or name another directory"},
		{"127.0.0.1:0", foreign, "etcd: data directory " + foreign + ": in use by another process; stop the node that runs there, or name another directory"},
		{"127.0.0.1:0", file + "/x", "etcd: data directory " + file + "/x: not a directory"},
		{"127.0.0.1:0", broken, "etcd: data directory " + broken + ": member/snap/db: invalid database"},
	} {
		began := time.Now()
		_, err := StartServer(t.Context(), ServerConfig{Listen: c.listen, Dir: c.dir})
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("listen %q, dir %q: error %q, not %q", c.listen, c.dir, err, c.want)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%q took %v", err, took)
		}
	}
}

func TestServerRefusesUnwritableDir(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	_, err := StartServer(t.Context(), ServerConfig{Listen: "127.0.0.1:0", Dir: dir})
	if want := "etcd: data directory " + dir + ": permission denied"; err == nil || err.Error() != want {
		t.Errorf("error %q, not %q", err, want)
	}
}

func TestServerStartIsCancelled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := StartServer(ctx, ServerConfig{Listen: "127.0.0.1:0", Dir: dir}); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	// What was under way ends in the background and gives the directory back.
	for deadline := time.Now().Add(patience); ; {
		s, err := StartServer(t.Context(), ServerConfig{Listen: "127.0.0.1:0", Dir: dir})
		if err == nil {
			s.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		sleep(t.Context(), minPause)
	}
}

func TestServerServesNoHTTP(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for _, path := range []string{"/metrics", "/health", "/version", "/debug/vars", "/debug/pprof/"} {
		resp, err := (&http.Client{Transport: transport}).Get("http://" + s.Endpoint() + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusMisdirectedRequest {
			t.Errorf("%s: status %d", path, resp.StatusCode)
		}
	}
}

func TestServerReportsItsDeath(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	go s.member.words.logger(nil).Fatal("failed to save", zap.Error(errors.New("no space left")))
	select {
	case err := <-s.Err():
		if want := "etcd on " + s.Endpoint() + ": failed to save: no space left"; err.Error() != want {
			t.Errorf("error %q, not %q", err, want)
		}
	case <-time.After(patience):
		t.Error("no error")
	}
	<-s.done
	if c, err := net.Dial("tcp", s.Endpoint()); err == nil {
		c.Close()
		t.Error("what has died still answers")
	}
}

// TestServerInChild runs a server in another process, which this one kills.
func TestServerInChild(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := startChild(t, dir)
	if _, _, err := net.SplitHostPort(c.line); err != nil {
		t.Fatalf("the child wrote %q", c.line)
	}
	put(t, rawClient(t, c.line), "k", "v")
	_, err := StartServer(t.Context(), ServerConfig{Listen: "127.0.0.1:0", Dir: dir})
	if want := "etcd: data directory " + dir + ": in use by another process; stop the node that runs there, or name another directory"; err == nil || err.Error() != want {
		t.Errorf("error %q, not %q", err, want)
	}
	if rest := c.kill(); rest != "" {
		t.Errorf("etcd wrote %q", rest)
	}
	s := startServer(t, "127.0.0.1:0", dir)
	resp, err := rawClient(t, s.Endpoint()).Get(t.Context(), "k")
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("after the kill: %v, %v", resp, err)
	}
}

// TestServerRefusesDamagedLog does so in other processes, because etcd leaves
// goroutines behind.
func TestServerRefusesDamagedLog(t *testing.T) {
	t.Parallel()
	const log = "member/wal/0000000000000000-0000000000000000.wal"
	for name, damage := range map[string]func(t *testing.T, path string){
		"no log": func(t *testing.T, path string) { writeFile(t, path, "this is no log") },
		"flipped byte": func(t *testing.T, path string) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b[100] ^= 0xff
			writeFile(t, path, string(b))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			startServer(t, "127.0.0.1:0", dir).Close()
			damage(t, filepath.Join(dir, log))
			c := startChild(t, dir)
			if want := "etcd: data directory " + dir + ": etcd does not start: "; !strings.HasPrefix(c.line, want) {
				t.Errorf("error %q, not %q", c.line, want)
			}
			t.Log(c.line)
			if rest := c.kill(); rest != "" {
				t.Errorf("etcd wrote %q", rest)
			}
		})
	}
}

// childProcess is this test in another process.
type childProcess struct {
	cmd    *exec.Cmd
	stdout *bufio.Reader
	stderr strings.Builder
	line   string // the endpoint of its server, or the error
}

func startChild(t *testing.T, dir string) *childProcess {
	t.Helper()
	c := &childProcess{cmd: exec.Command(os.Args[0], "-test.run=^TestChild$")}
	c.cmd.Env = append(os.Environ(), "WEIR_TEST_ETCD_DIR="+dir)
	c.cmd.Stderr = &c.stderr
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.stdout = bufio.NewReader(stdout)
	c.line, _ = c.stdout.ReadString('\n')
	c.line = strings.TrimSpace(c.line)
	return c
}

// kill returns the other output of the process, without its line.
func (c *childProcess) kill() string {
	_ = c.cmd.Process.Kill()
	rest, _ := io.ReadAll(c.stdout)
	_ = c.cmd.Wait() // it was killed
	return string(rest) + c.stderr.String()
}

// TestChild runs a server until its process is killed.
func TestChild(t *testing.T) {
	dir := os.Getenv("WEIR_TEST_ETCD_DIR")
	if dir == "" {
		t.Skip("not a child")
	}
	s, err := StartServer(t.Context(), ServerConfig{Listen: "127.0.0.1:0", Dir: dir})
	if err != nil {
		os.Stdout.WriteString(err.Error() + "\n")
	} else {
		os.Stdout.WriteString(s.Endpoint() + "\n")
	}
	select {}
}

func openDB(t *testing.T, dir string) *bolt.DB {
	t.Helper()
	snap := filepath.Join(dir, "member", "snap")
	if err := os.MkdirAll(snap, 0o700); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(filepath.Join(snap, "db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
