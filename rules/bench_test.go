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
					{"user", fmt.Sprintf("user-%08d", i)}, {"endpoint", endpoint}, {"method", "POST"},
				}}
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
