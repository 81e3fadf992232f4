package etcd

import (
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/ring"
)

// TestMirrorAgainstModel lets anybody write anything and compares what is handed
// out with what a plain map says.
func TestMirrorAgainstModel(t *testing.T) {
	r, err := ring.Build(smallRing, []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	rawView := func(number uint64, variant string) []byte {
		b, err := cluster.MarshalView(&cluster.View{Number: number, Ring: r, Members: []cluster.Member{
			{ID: "a", Address: variant}, {ID: "b", Address: "b:1"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	k := keysOf("test")
	params := []byte("params")

	rapid.Check(t, func(t *rapid.T) {
		m := newMirror(k, slog.New(slog.DiscardHandler))
		stored := map[string]*keyValue{} // what etcd holds
		revision := int64(0)
		var good *keyValue // the view that is believed
		var number uint64  // of it
		var last cluster.Snapshot
		handedOut := false

		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			key := rapid.SampledFrom([]string{k.nodes + "a", k.nodes + "b", k.nodes + "!", k.view, k.view, k.params, "/weir/test/rules/x"}).Draw(t, "key")
			revision++
			switch rapid.SampledFrom([]string{"put", "put", "put", "delete", "list", "wipe"}).Draw(t, "what") {
			case "put":
				var value []byte
				switch {
				case key == k.params:
					value = []byte(rapid.SampledFrom([]string{"params", "params", "others"}).Draw(t, "params"))
				case key == k.view:
					value = rawView(uint64(rapid.IntRange(0, 5).Draw(t, "number")), rapid.SampledFrom([]string{"x", "y"}).Draw(t, "variant"))
				default:
					id := strings.TrimPrefix(key, k.nodes)
					value, _ = json.Marshal(node(id, uint64(rapid.IntRange(0, 2).Draw(t, "incarnation"))))
				}
				if rapid.IntRange(0, 9).Draw(t, "damage") == 0 {
					value = value[:len(value)/2]
				}
				kv := &keyValue{Key: []byte(key), Value: value, ModRevision: revision}
				stored[key] = kv
				m.set(kv)
			case "delete":
				delete(stored, key)
				m.unset(key, revision)
			case "wipe":
				clear(stored)
				revision = 1
				fallthrough
			case "list":
				var kvs []*keyValue
				for _, kv := range stored {
					kvs = append(kvs, kv)
				}
				m.replace(kvs, revision)
			}

			if kv := stored[k.view]; kv != nil && stored[k.params] != nil && string(stored[k.params].Value) == "params" {
				if v, err := cluster.UnmarshalView(kv.Value); err == nil && v.Number > number {
					good, number = kv, v.Number
				}
			}
			var nodes []cluster.Node
			for _, id := range []string{"a", "b"} {
				if kv := stored[k.nodes+id]; kv != nil {
					var n cluster.Node
					if json.Unmarshal(kv.Value, &n) == nil && n.Incarnation > 0 {
						nodes = append(nodes, n)
					}
				}
			}

			s, changed := m.snapshot(params)
			if !slices.Equal(s.Nodes, nodes) {
				t.Fatalf("nodes %v, not %v", s.Nodes, nodes)
			}
			if (s.View == nil) != (good == nil) || s.View != nil && s.View.Number != number {
				t.Fatalf("view %+v, not %d", s.View, number)
			}
			if s.View != nil && m.view.alarm == "" && s.ViewRevision != stored[k.view].ModRevision {
				t.Fatalf("revision %d, stored is %v", s.ViewRevision, stored[k.view])
			}
			trusted := stored[k.view] != nil && good != nil && string(stored[k.view].Value) == string(good.Value) || stored[k.view] == nil && good == nil
			trusted = trusted && stored[k.params] != nil && string(stored[k.params].Value) == "params"
			if (m.view.alarm == "") != trusted {
				t.Fatalf("alarm %q, trusted %v", m.view.alarm, trusted)
			}
			same := handedOut && slices.Equal(s.Nodes, last.Nodes) && s.View == last.View && s.ViewRevision == last.ViewRevision
			if changed == same {
				t.Fatalf("changed %v from %+v to %+v", changed, last, s)
			}
			handedOut, last = true, s
		}
	})
}

// FuzzMirror shows that nothing that stands in etcd makes a node panic.
func FuzzMirror(f *testing.F) {
	f.Add([]byte(`{"id":"a","address":"a:1","incarnation":1,"state":"ready"}`), []byte(`{"number":1,"members":[{"id":"a"}],"owner":"AAA=","standby":"AAA=","checksum":"0"}`))
	f.Add([]byte(`null`), []byte(`null`))
	f.Add([]byte{}, []byte{0xff})
	f.Fuzz(func(t *testing.T, nodeValue, viewValue []byte) {
		k := keysOf("test")
		m := newMirror(k, slog.New(slog.DiscardHandler))
		m.set(&keyValue{Key: []byte(k.nodes + "a"), Value: nodeValue, ModRevision: 1})
		m.set(&keyValue{Key: []byte(k.view), Value: viewValue, ModRevision: 2})
		s, changed := m.snapshot(nil)
		if !changed {
			t.Error("the first snapshot is no change")
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
