package rules

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/ring"
)

// manyRules returns n rules with conditions made from their number.
func manyRules(n int, when string) *Set {
	var b strings.Builder
	b.WriteString("domain: shop\nrules:\n")
	for i := range n {
		fmt.Fprintf(&b, "- {id: rule-%d, when: {%s}, per: [user], limits: [{limit: 10, window: 1s}]}\n", i, fmt.Sprintf(when, i))
	}
	set, err := Parse("many.yaml", []byte(b.String()))
	if err != nil {
		panic(err)
	}
	return set
}

func BenchmarkMatch(b *testing.B) {
	for _, bc := range []struct {
		name, when string
		n          int
	}{
		{"exact-10", `endpoint: "/api/v1/posts/%d"`, 10},
		{"exact-10000", `endpoint: "/api/v1/posts/%d"`, 10_000},
		{"exact-10000-and-method", `endpoint: "/api/v1/posts/%d", method: [GET, POST]`, 10_000},
		{"prefix-10", `endpoint: "/api/v1/posts/%d/*"`, 10},
		{"prefix-10000", `endpoint: "/api/v1/posts/%d/*"`, 10_000},
		{"exact-30000", `endpoint: "/api/v1/posts/%d"`, 30_000},
		{"exact-10000-and-tenant", `endpoint: "/api/v1/posts/%[1]d", tenant: t-%[1]d`, 10_000},
	} {
		b.Run(bc.name, func(b *testing.B) {
			set := manyRules(bc.n, bc.when)
			h := ring.NewHasher([ring.SecretSize]byte{1, 2, 3})
			requests := make([]Request, 4096)
			for i := range requests {
				n := i * 7919 % bc.n
				endpoint := fmt.Sprintf("/api/v1/posts/%d", n)
				if strings.HasPrefix(bc.name, "prefix") {
					endpoint += "/comments"
				}
				requests[i] = Request{Domain: "shop", Attributes: []Attribute{
					{Key: "user", Value: fmt.Sprintf("user-%08d", i)}, {Key: "endpoint", Value: endpoint}, {Key: "method", Value: "POST"},
				}}
				if strings.HasSuffix(bc.name, "tenant") {
					requests[i].Attributes[2] = Attribute{Key: "tenant", Value: fmt.Sprintf("t-%d", n)}
				}
			}
			var buf [8]Match
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				if got := set.Match(h, &requests[i%len(requests)], buf[:0]); len(got) != 1 {
					b.Fatalf("%d matches", len(got))
				}
				i++
			}
		})
	}
}

// Each request here meets one of 10,000 rules with a feature, among others.
func BenchmarkMatchFeatures(b *testing.B) {
	const n = 10_000
	const limits = "limits: [{limit: 10, window: 1s}]"
	block := func(i int) string { return fmt.Sprintf("10.%d.%d", i>>8, i&255) }
	for _, bc := range []struct {
		name string
		rule func(i int) string
		more string // rules
		ip   func(i int) string
		want int
	}{
		{"block", func(i int) string { return fmt.Sprintf("when: {ip: %s.0/24}, %s", block(i), limits) }, "", func(i int) string { return block(i) + ".7" }, 1},
		{"block-and-port", func(i int) string { return fmt.Sprintf("when: {ip: %s.0/24}, %s", block(i), limits) }, "", func(i int) string { return block(i) + ".7:443" }, 1},
		{"block-per-ip", func(i int) string { return fmt.Sprintf("when: {ip: '2001:db8:%x::/48'}, per: [ip], %s", i, limits) }, "", func(i int) string { return fmt.Sprintf("2001:DB8:%x::1", i) }, 1},
		{"address", func(i int) string { return fmt.Sprintf("when: {ip: %s.7}, %s", block(i), limits) }, "", func(i int) string { return block(i) + ".7" }, 1},
		{"unlimited", func(i int) string { return fmt.Sprintf("when: {path: /%d}, %s", i, limits) }, "- {id: staff, when: {user: '*'}, unlimited: true}\n", nil, 1},
		{"replaces", func(i int) string { return fmt.Sprintf("when: {path: /%d}, replaces: [all], %s", i, limits) }, "- {id: all, " + limits + "}\n", nil, 1},
		{"elastic", func(i int) string {
			return fmt.Sprintf("when: {path: /%d}, mode: {elastic: {parent: all, up_to: 150%%}}, %s", i, limits)
		}, "- {id: all, " + limits + "}\n", nil, 2},
		{"two-sets", func(i int) string { return fmt.Sprintf("when: {path: /%d}, per: [[user], [plan]], %s", i, limits) }, "", nil, 2},
		{"enforced", func(i int) string { return fmt.Sprintf("when: {path: /%d}, enforce: 50, %s", i, limits) }, "", nil, 1},
	} {
		b.Run(bc.name, func(b *testing.B) {
			var text strings.Builder
			text.WriteString("domain: shop\nrules:\n" + bc.more)
			for i := range n {
				fmt.Fprintf(&text, "- {id: rule-%d, %s}\n", i, bc.rule(i))
			}
			set := parse(b, text.String())
			requests := make([]Request, 4096)
			for i := range requests {
				requests[i] = *request("shop", "user=alice", "plan=free", fmt.Sprint("path=/", i*7919%n))
				if bc.ip != nil {
					requests[i].Attributes[2] = Attribute{Key: IPAttribute, Value: bc.ip(i * 7919 % n)}
				}
			}
			var buf [8]Match
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				if got := set.Match(testHasher, &requests[i%len(requests)], buf[:0]); len(got) != bc.want {
					b.Fatal(matched(got))
				}
				i++
			}
		})
	}
}

func BenchmarkLoad(b *testing.B) {
	var text strings.Builder
	text.WriteString("domain: shop\nrules:\n")
	for i := range 10_000 {
		fmt.Fprintf(&text, "- {id: rule-%d, when: {endpoint: /api/v1/posts/%d}, per: [user], limits: [{limit: 10, window: 1s}]}\n", i, i)
	}
	for b.Loop() {
		if _, err := Parse("many.yaml", []byte(text.String())); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStored is what a node does with 1,000 changed rules: read what is
// stored, and compile it.
func BenchmarkStored(b *testing.B) {
	doc := Document{Domain: "d"}
	for i := range 1000 {
		doc.Rules = append(doc.Rules, Spec{
			ID: fmt.Sprint("rule-", i), When: map[string]ConditionSpec{"endpoint": {AnyOf: []string{fmt.Sprint("/api/v1/resource/", i)}}},
			Per: [][]string{{"user"}}, Limits: []LimitSpec{{Limit: 10, Window: "1s"}, {Limit: 500, Window: "1h"}},
		})
	}
	set, err := Compile("x", []Document{doc})
	if err != nil {
		b.Fatal(err)
	}
	value, err := (&State{Set: set, Revision: 1}).marshal(1 << 20)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(value)))
	for b.Loop() {
		if _, err := unmarshal("x", value, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
