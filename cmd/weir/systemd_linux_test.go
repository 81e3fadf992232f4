package main

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The end of a start is put off again and again while the node waits, and not by one that is stuck, ready or stopping.
func TestStartIsPutOff(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	s := newSupervisor(map[string]string{"NOTIFY_SOCKET": path}, newLogger(t.Output(), "warn"))
	if s.extend != time.Minute {
		t.Errorf("put off by %v", s.extend)
	}
	s.extend = 30 * time.Millisecond
	const answered = 3
	asked, stuck, mended := 0, make(chan struct{}), make(chan struct{})
	s.wait.Go(func() {
		s.putOff(func() {
			if asked++; asked > answered {
				close(stuck)
				<-mended
			}
		})
	})
	buf := make([]byte, 200)
	for i := range answered {
		if n, err := conn.Read(buf); err != nil || string(buf[:n]) != "EXTEND_TIMEOUT_USEC=30000" {
			t.Errorf("message %d: %q, %v", i, buf[:n], err)
		}
	}
	<-stuck
	s.stopping()
	close(mended) // too late to be told
	s.stop()
	if n, err := conn.Read(buf); err != nil || !strings.HasPrefix(string(buf[:n]), "STOPPING=1") {
		t.Errorf("%q, %v", buf[:n], err)
	}
	if err := conn.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(buf); err == nil {
		t.Errorf("%q after STOPPING=1", buf[:n])
	}
}

// TestStuckNodeIsNotPinged: the watchdog hears of a node that answers, and of one that is stuck no more.
func TestStuckNodeIsNotPinged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "30000")
	s := newSupervisor(map[string]string{"NOTIFY_SOCKET": path}, newLogger(t.Output(), "warn"))
	if want := 10 * time.Millisecond; s.every != want {
		t.Fatalf("pings every %v, want %v", s.every, want)
	}

	const answered = 3
	asked, mended := 0, make(chan struct{})
	s.wait.Go(func() {
		s.ping(func() {
			if asked++; asked > answered {
				<-mended
			}
		})
	})
	buf := make([]byte, 100)
	for i := range answered {
		if n, err := conn.Read(buf); err != nil || string(buf[:n]) != "WATCHDOG=1" {
			t.Errorf("message %d: %q, %v", i, buf[:n], err)
		}
	}
	if err := conn.SetReadDeadline(time.Now().Add(20 * s.every)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(buf); err == nil {
		t.Errorf("%q of a node that is stuck", buf[:n])
	}
	close(mended)
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(buf); err != nil || string(buf[:n]) != "WATCHDOG=1" {
		t.Errorf("%q, %v of a node that goes on", buf[:n], err)
	}
	s.stop()
}
