package cluster

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir/cluster/view"
)

func TestHelloIsReadAsItWasWritten(t *testing.T) {
	want := hello{
		from:  Identity{Cluster: 1<<63 + 7, ID: "weir-1", Incarnation: view.Uncounted | 3},
		to:    Identity{Cluster: 1<<63 + 7, ID: strings.Repeat("n", 255), Incarnation: 12},
		clock: 1795372040123456789, minorVersion: 7,
	}
	b, err := want.appendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	r := strings.NewReader(string(b))
	if err := readPreface(r); err != nil {
		t.Fatal(err)
	}
	if got, err := readHello(r); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for n := range b {
		cut := strings.NewReader(string(b[:n]))
		if err := readPreface(cut); err != nil {
			continue
		}
		if h, err := readHello(cut); err == nil {
			t.Errorf("%d of %d bytes are read as %+v", n, len(b), h)
		}
	}
	for _, body := range []string{"", "short", strings.Repeat("\xff", 40), strings.Repeat("\x00", 25)} {
		if h, err := readHello(strings.NewReader(string([]byte{byte(len(body)), 0}) + body)); err == nil {
			t.Errorf("%q is read as %+v", body, h)
		}
	}
	const oldest = 3*8 + 2 + 6 + 255 // bytes, without a clock
	body := b[len(connPreface)+2:]
	for _, older := range []int{oldest, oldest + 8} { // the latter without a minor version
		want := want
		if want.minorVersion = 0; older == oldest {
			want.clock = 0
		}
		if got, err := readHello(strings.NewReader(string([]byte{byte(older), byte(older >> 8)}) + string(body[:older]))); err != nil || got != want {
			t.Errorf("of an older version: %+v, %v, want %+v", got, err, want)
		}
	}
	if _, err := readHello(strings.NewReader("\xff\xff")); err == nil || err.Error() != "hello of 65535 bytes is above 1024" {
		t.Error(err)
	}
}

// Nodes say in their hellos what they read, and a conn keeps to that.
func TestRevisionOfAPeer(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		for _, p := range c.nodes[0].router.table.Load().peers[1:] {
			for _, c := range p.conns {
				if c.mu.Lock(); c.minorVersion != connMinorVersion {
					t.Errorf("%s reads minor version %d, want %d", p.member.ID, c.minorVersion, connMinorVersion)
				}
				c.mu.Unlock()
			}
		}
	})
}
