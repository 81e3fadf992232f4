package etcd

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/view"
)

// TestCacheAgainstModel writes anything from anywhere and compares the content with a plain map.
func TestCacheAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{
			t:      t,
			keys:   keysOf("test"),
			cache:  newCache(keysOf("test"), slog.New(slog.DiscardHandler)),
			stored: make(map[string]*keyValue),
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			m.step()
			m.compare()
		}
	})
}

// ourParams are what stands in etcd while it is the one that it was.
const ourParams = "params"

// model is the dumb twin of a cache, next to it.
type model struct {
	t     *rapid.T
	keys  keys
	cache *etcdCache

	stored   map[string]*keyValue // what etcd holds
	revision int64
	good     *keyValue // the view that is to be believed
	number   uint64    // of good
	last     *cluster.RegistryContent
}

// step changes what etcd holds and tells the cache.
func (m *model) step() {
	k := m.keys
	key := rapid.SampledFrom([]string{
		k.nodes + "a", k.nodes + "b", k.nodes + "!", k.view, k.view, k.params, "/weir/test/rules/x",
	}).Draw(m.t, "key")
	m.revision++
	switch rapid.SampledFrom([]string{"put", "put", "put", "delete", "list", "wipe"}).Draw(m.t, "what") {
	case "put":
		kv := &keyValue{Key: []byte(key), Value: m.value(key), ModRevision: m.revision}
		m.stored[key] = kv
		m.cache.set(kv)
	case "delete":
		delete(m.stored, key)
		m.cache.unset(key, m.revision)
	case "wipe":
		clear(m.stored)
		m.revision = 1
		m.cache.replace(nil, 1)
	case "list":
		m.cache.replace(slices.Collect(maps.Values(m.stored)), m.revision)
	}
	if kv := m.stored[k.view]; kv != nil && m.ours() {
		if v, err := view.Unmarshal(kv.Value); err == nil && v.Number > m.number {
			m.good, m.number = kv, v.Number
		}
	}
}

// value draws something to put at key, now and then damaged.
func (m *model) value(key string) []byte {
	var value []byte
	switch key {
	case m.keys.params:
		value = []byte(rapid.SampledFrom([]string{ourParams, ourParams, "others"}).Draw(m.t, "params"))
	case m.keys.view:
		number := rapid.IntRange(0, 5).Draw(m.t, "number")
		address := rapid.SampledFrom([]string{"x", "y"}).Draw(m.t, "address")
		v := viewOf(uint64(number), "a")
		v.Members[0].Address = address
		value, _ = view.Marshal(v) // none of number 0, which is none
	default:
		id := strings.TrimPrefix(key, m.keys.nodes)
		value, _ = json.Marshal(node(id, uint64(rapid.IntRange(0, 2).Draw(m.t, "incarnation"))))
	}
	if rapid.IntRange(0, 9).Draw(m.t, "damage") == 0 {
		value = value[:len(value)/2]
	}
	return value
}

func (m *model) ours() bool {
	kv := m.stored[m.keys.params]
	return kv != nil && string(kv.Value) == ourParams
}

// trusted says whether etcd holds the view that is believed.
func (m *model) trusted() bool {
	kv := m.stored[m.keys.view]
	switch {
	case !m.ours():
		return false
	case kv == nil || m.good == nil:
		return kv == nil && m.good == nil
	}
	return string(kv.Value) == string(m.good.Value)
}

func (m *model) nodes() []cluster.Node {
	var nodes []cluster.Node
	for _, id := range []string{"a", "b"} {
		var n cluster.Node
		kv := m.stored[m.keys.nodes+id]
		if kv != nil && json.Unmarshal(kv.Value, &n) == nil && n.Incarnation > 0 {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// compare fails if the cache hands out something else than the model would.
func (m *model) compare() {
	s, changed := m.cache.content([]byte(ourParams))
	if want := m.nodes(); !slices.Equal(s.Nodes, want) {
		m.t.Fatalf("nodes %v, not %v", s.Nodes, want)
	}
	if (s.View == nil) != (m.good == nil) || s.View != nil && s.View.Number != m.number {
		m.t.Fatalf("view %+v, not %d", s.View, m.number)
	}
	alarm := m.cache.view.alarm
	if (alarm == "") != m.trusted() {
		m.t.Fatalf("alarm %q, trusted %v", alarm, m.trusted())
	}
	if s.View != nil && alarm == "" && s.ViewRevision != m.stored[m.keys.view].ModRevision {
		m.t.Fatalf("revision %d, stored is %v", s.ViewRevision, m.stored[m.keys.view])
	}
	same := m.last != nil && slices.Equal(s.Nodes, m.last.Nodes) && s.View == m.last.View && s.ViewRevision == m.last.ViewRevision
	if changed == same {
		m.t.Fatalf("changed %v from %+v to %+v", changed, m.last, s)
	}
	m.last = &s
}

// FuzzCache shows that nothing that stands in etcd makes a node panic.
func FuzzCache(f *testing.F) {
	f.Add([]byte(`{"id":"a","address":"a:1","incarnation":1,"state":"ready"}`), []byte(`{"number":1,"members":[{"id":"a"}],"owner":"AAA=","standby":"AAA=","checksum":"0"}`))
	f.Add([]byte(`null`), []byte(`null`))
	f.Add([]byte{}, []byte{0xff})
	f.Fuzz(func(t *testing.T, nodeValue, viewValue []byte) {
		k := keysOf("test")
		m := newCache(k, slog.New(slog.DiscardHandler))
		m.set(&keyValue{Key: []byte(k.nodes + "a"), Value: nodeValue, ModRevision: 1})
		m.set(&keyValue{Key: []byte(k.view), Value: viewValue, ModRevision: 2})
		s, changed := m.content(nil)
		if !changed {
			t.Error("the first content is no change")
		}
		for _, n := range s.Nodes {
			if n.ID != "a" || n.Address == "" || n.Incarnation == 0 || n.State == "" {
				t.Errorf("node %+v", n)
			}
		}
		if s.View != nil && s.View.Number == 0 {
			t.Errorf("view %+v", s.View)
		}
		_ = mayReplace(&keyValue{Value: viewValue}, 0, 2, 1)
	})
}

func TestAddressesThatAreRefused(t *testing.T) {
	for _, tc := range []struct{ address, want string }{
		{"10.0.0.1:9090", "<nil>"},
		{"weir-1.example:9090", "<nil>"},
		{"[2001:db8::1]:9090", "<nil>"},
		{"[fe80::1%eth0]:9090", `address "[fe80::1%eth0]:9090" has a zone`},
		{"weir-1", `address "weir-1" is not host:port`},
		{":9090", `address ":9090" is not host:port`},
		{"weir-1:0", `address "weir-1:0" is not host:port`},
		{"weir-1:http", `address "weir-1:http" is not host:port`},
		{"weir-1:65536", `address "weir-1:65536" is not host:port`},
		{"", "address is missing"},
	} {
		value := fmt.Sprintf(`{"id":"a","address":%q,"incarnation":1,"state":"ready"}`, tc.address)
		if _, err := parseNode("a", []byte(value)); fmt.Sprint(err) != tc.want {
			t.Errorf("%q: %v, want %s", tc.address, err, tc.want)
		}
	}
}
