package rules

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules/internal/counter"
)

func TestParseIP(t *testing.T) {
	for value, want := range someIPs {
		if got, _, ok := parseIPText(value); !ok || got.String() != want || !ValidIP(value) {
			t.Errorf("parseIP(%q) = %v, %t, want %s", value, got, ok, want)
		}
	}
	more := []string{"1.2.3.4.5", "1.2.3.256", "[]", "[]:80", "%eth0", ":80", "[10.0.0.1]:", "[::1]:1:2", "1.2.3.4:+80", "a.b"}
	for _, value := range append(more, someNoIPs...) {
		if got, _, ok := parseIPText(value); ok || ValidIP(value) {
			t.Errorf("parseIP(%q) = %v", value, got)
		}
	}
}

// keyOf returns the key of the only match.
func keyOf(t *testing.T, set *Set, ip string) ring.Key {
	t.Helper()
	ms := set.Match(testHasher, request("d", "ip="+ip), nil)
	if len(ms) != 1 {
		t.Fatalf("%s matches %s", ip, matched(ms))
	}
	return ms[0].Key
}

func TestIPCounters(t *testing.T) {
	for _, c := range []struct {
		prefix, a, b string
		same         bool
	}{
		{"64", "10.0.0.1", "10.0.0.1:80", true},
		{"64", "10.0.0.1", "::ffff:10.0.0.1", true},
		{"64", "10.0.0.1", "10.0.0.2", false},
		{"64", "2001:db8::1", "[2001:DB8::2%eth0]:80", true},
		{"64", "2001:db8::1", "2001:db8:0:1::1", false},
		{"56", "2001:db8::1", "2001:db8:0:1::1", true},
		{"128", "2001:db8::1", "2001:db8::2", false},
		{"128", "2001:db8::1", "2001:db8:0::1", true},
		{"1", "::1", "7fff::1", true},
		{"64", "unknown", "unknown", true},
		{"64", "unknown", "unknown:80", false},
		{"64", "10.0.0", "10.0.0.0", false},
	} {
		set := parse(t, oneRule("{id: r, per: [ip], limits: [{limit: 1, window: 1s}], ipv6_prefix: "+c.prefix+"}"))
		if same := keyOf(t, set, c.a) == keyOf(t, set, c.b); same != c.same {
			t.Errorf("/%s: %s and %s have one counter: %t", c.prefix, c.a, c.b, same)
		}
	}
	// IPv4 and what is no address have the name that any attribute has.
	rule := "{id: r, per: [ip], limits: [{limit: 1, window: 1s}]}"
	for _, ip := range []string{"10.0.0.1", "unknown"} {
		want := testHasher.Key([]byte("\x01d\x01r\x02ip" + string(rune(len(ip))) + ip)).Lo
		if got := keyOf(t, parse(t, oneRule(rule)), ip).Lo; got != want {
			t.Errorf("the counter of %s is not named by it", ip)
		}
	}
	want := testHasher.Key([]byte("\x01d\x01r\x02ip\x0d2001:db8::/64")).Lo
	if got := keyOf(t, parse(t, oneRule(rule)), "2001:db8::1").Lo; got != want {
		t.Error("the counter of an IPv6 address is not named by its block")
	}
}

func TestIPConditions(t *testing.T) {
	for _, c := range []struct {
		when, ip string
		want     bool
	}{
		{"10.0.0.1", "10.0.0.1:80", true},
		{"10.0.0.1", "::ffff:10.0.0.1", true},
		{`"::ffff:10.0.0.1"`, "10.0.0.1", true},
		{`"2001:DB8:0::1"`, "2001:db8::1", true},
		{`"2001:db8::1"`, "2001:db8::2", false},
		{"10.0.0.0/8", "10.255.255.255", true},
		{"10.0.0.0/8", "11.0.0.0", false},
		{"10.0.0.0/8", "[::ffff:a01:203]:1", true},
		{"10.0.0.0/8", "::a00:1", false},
		{"10.0.0.0/8", "10.0.0", false},
		{"2001:db8::/32", "[2001:db8:ffff::1%eth0]:80", true},
		{"2001:db8::/32", "2001:db9::", false},
		{"[10.0.0.0/8, 10.1.0.0/16, 10.1.2.3, unknown]", "10.1.2.3", true},
		{"[10.0.0.0/8, 10.1.0.0/16, 10.1.2.3, unknown]", "unknown", true},
		{"[10.0.0.0/8, 10.1.0.0/16, 10.1.2.3, unknown]", "11.0.0.1", false},
		{"[10.0.0.0/8, 10.*]", "10.1.2.3", true},
		{"'re:10[.].*[.]3'", "10.1.2.3:99", true},
		{"'re:10[.].*:99'", "10.1.2.3:99", false},
		{`"2001:db8::*"`, "[2001:0DB8:0:0::1]:80", true},
		{`"2001:0*"`, "2001:0DB8:0:0::1", false},
		{`"re:2001:db8::[12]"`, "2001:0DB8:0:0::1", true},
		{"0.0.0.0/0", "255.255.255.255", true},
		{"0.0.0.0/0", "::", false},
		{`"::/0"`, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", true},
		{"{absent: true}", "10.0.0.1", false},
		{`"*"`, "x", true},
	} {
		set := parse(t, oneRule("{id: r, when: {ip: "+c.when+"}, limits: [{limit: 1, window: 1s}]}"))
		req := request("d", "x=y", "ip="+c.ip)
		if got := len(set.Match(testHasher, req, nil)); got != map[bool]int{true: 1}[c.want] {
			t.Errorf("when %s: %s has %d matches", c.when, c.ip, got)
		}
		if req.Attributes[1].Value != c.ip {
			t.Errorf("the request has become %v", req.Attributes)
		}
	}
	// Only the attribute ip is an address.
	set := parse(t, oneRule("{id: r, when: {client: 10.0.0.0/8}, limits: [{limit: 1, window: 1s}]}"))
	for ip, want := range map[string]int{"10.0.0.1": 0, "10.0.0.0/8": 1} {
		if got := len(set.Match(testHasher, request("d", "client="+ip), nil)); got != want {
			t.Errorf("client %s has %d matches, want %d", ip, got, want)
		}
	}
}

func TestIPDoesNotAllocate(t *testing.T) {
	set := parse(t, `
domain: d
rules:
  - {id: a, when: {ip: [10.0.0.0/8, "2001:db8::/32"]}, per: [ip], limits: [{limit: 1, window: 1s}]}
  - {id: b, when: {ip: ["10.*", "2001:*", "re:.*[13]"]}, per: [[ip], [user]], limits: [{limit: 1, window: 1s}]}
  - {id: c, when: {ip: 10.0.0.9}, unlimited: true}
  - {id: d, when: {ip: 10.0.0.3}, limits: [{limit: 1, window: 1s}], replaces: [a]}
`)
	for ip, want := range map[string]string{
		"10.0.0.1":        "a[0] b/0[0] b/1[0]",
		"::ffff:10.0.0.1": "a[0] b/0[0] b/1[0]",
		"10.0.0.3:80":     "b/0[0] b/1[0] d[0]",
		"2001:db8::1":     "a[0] b/0[0] b/1[0]",
		"[2001:DB8:1111:2222:3333:4444:5555:6666]:80": "a[0] b/0[0] b/1[0]",
		"2001:0db8:0:0:0:0:0:1%eth0":                  "a[0] b/0[0] b/1[0]",
		"10.0.0.9":                                    "c[-1]",
		"unknown":                                     "",
	} {
		var buf [8]Match
		req := request("d", "user=u", "ip="+ip)
		if got := matched(set.Match(testHasher, req, buf[:0])); got != want {
			t.Errorf("%s matches %s, want %s", ip, got, want)
		}
		if n := testing.AllocsPerRun(100, func() { set.Match(testHasher, req, buf[:0]) }); n != 0 && !racing() {
			t.Errorf("%s: %v allocations", ip, n)
		}
	}
}

// parseIPv4 reads as netip and cutPort do.
func TestParseIPv4(t *testing.T) {
	field := rapid.SampledFrom([]string{"0", "1", "10", "192", "255", "256", "1000", "00", "01", "", "a", "+1"})
	port := rapid.SampledFrom([]string{"", "", ":80", ":99999", ":100000", ":", ":+1", ":1:", ":a", "%a"})
	rapid.Check(t, func(t *rapid.T) {
		fields := rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom([]string{"0", "7", "255"}), field), 3, 5).Draw(t, "fields")
		text := strings.Join(fields, ".") + port.Draw(t, "port")
		got, rest, ok := parseIPv4(text)
		host, reads := cutPort(text)
		want, err := netip.ParseAddr(host)
		if reads = reads && err == nil && want.Is4(); ok != reads || ok && (got != want || rest != host) {
			t.Fatalf("%q: %v, %q, %t, want %v, %q, %v", text, got, rest, ok, want, host, err)
		}
	})
}

// parseIPv6 reads as netip does.
func TestParseIPv6(t *testing.T) {
	part := rapid.SampledFrom([]string{":", "::", ":", "0", "1", "db8", "FfFf", "12345", "00001", ".", "%", "g"})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(part, 0, 18).Draw(t, "parts"), "")
		if rapid.Bool().Draw(t, "whole") { // most others are none
			groups := rapid.SliceOfN(rapid.SampledFrom([]string{"0", "1", "0db8", "FfFf", ""}), 6, 9).Draw(t, "groups")
			text = strings.Join(groups, ":")
		}
		got, ok := parseIPv6(text)
		want, err := netip.ParseAddr(text)
		if reads := err == nil && !strings.ContainsAny(text, ".%"); ok != reads || ok && got != want {
			t.Fatalf("%q: %v, %t, want %v, %v", text, got, ok, want, err)
		}
	})
}

// What names counters stays as it is, however it is written.
func TestAppendIP(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		group := rapid.OneOf(rapid.Just(uint16(0)), rapid.Uint16())
		var bytes [16]byte
		for i := 0; i < len(bytes); i += 2 {
			binary.BigEndian.PutUint16(bytes[i:], group.Draw(t, "group"))
		}
		addr, bits := netip.AddrFrom16(bytes), rapid.IntRange(1, 128).Draw(t, "bits")
		got, want := appendIP([]byte("x"), addr, bits), counter.AppendText([]byte("x"), netip.PrefixFrom(addr, bits).Masked().String())
		if string(got) != string(want) {
			t.Fatalf("%v/%d: %q, want %q", addr, bits, got, want)
		}
	})
}

// More attributes than the bound cost, but do not break.
func TestIPManyAttributes(t *testing.T) {
	set := parse(t, oneRule("{id: r, when: {ip: 10.0.0.1}, per: [a39], limits: [{limit: 1, window: 1s}]}"))
	var attributes []string
	for i := range 40 {
		attributes = append(attributes, fmt.Sprintf("a%d=x", i))
	}
	if got := set.Match(testHasher, request("d", append(attributes, "ip=[10.0.0.1]:80")...), nil); len(got) != 1 {
		t.Errorf("%d matches", len(got))
	}
}

// Blocks within others do not multiply.
func TestBlockIndexIsSmall(t *testing.T) {
	filed := map[netip.Prefix]extent{netip.MustParsePrefix("10.0.0.0/8"): {1, 1000}}
	for i := range uint32(1000) {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)
		filed[p] = extent{1000 + i, 1001 + i}
	}
	ix := newBlockIndex(filed)
	if n := len(ix.v4.all); n > 2*len(filed)+1 || len(ix.v4.pages) > 2*n {
		t.Errorf("%d stretches on %d pages", n, len(ix.v4.pages))
	}
	var path []extent
	for b := ix.find(netip.MustParseAddr("10.0.5.7")); b != nil; b = b.outer {
		path = append(path, b.filed)
	}
	if want := []extent{{1005, 1006}, {1, 1000}}; !slices.Equal(path, want) {
		t.Errorf("10.0.5.7 leads to %v", path)
	}
}

// A search asks few stretches, however blocks lie: many side by side, and one far off.
func TestBlockIndexPages(t *testing.T) {
	filed := make(map[netip.Prefix]extent)
	for i := range uint32(10_000) {
		filed[netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, byte(i >> 8), byte(i)}), 48)] = extent{i, i + 1}
	}
	widest := func() (most uint32) {
		pages := newBlockIndex(filed).v6.pages
		for i := range len(pages) - 1 {
			most = max(most, pages[i+1]-pages[i])
		}
		return most
	}
	if n := widest(); n > 2 {
		t.Errorf("a search among blocks side by side asks %d stretches", n)
	}
}

// The index finds what asking every block finds, over many pages.
func TestBlockIndexAsLinear(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		filed := make(map[netip.Prefix]extent)
		part := rapid.SampledFrom([]byte{0, 1, 10, 127, 128, 254, 255})
		address := rapid.Custom(func(t *rapid.T) netip.Addr {
			if rapid.Bool().Draw(t, "v4") {
				return netip.AddrFrom4([4]byte{part.Draw(t, "a"), rapid.Byte().Draw(t, "b"), 0, rapid.Byte().Draw(t, "c")})
			}
			return netip.AddrFrom16([16]byte{part.Draw(t, "a"), 7: part.Draw(t, "b"), 8: part.Draw(t, "c"), 15: rapid.Byte().Draw(t, "d")})
		})
		for range rapid.IntRange(0, 400).Draw(t, "blocks") {
			addr := address.Draw(t, "address")
			p := netip.PrefixFrom(addr, rapid.IntRange(0, addr.BitLen()).Draw(t, "bits")).Masked()
			n := uint32(len(filed))
			filed[p] = extent{n, n + 1}
		}
		ix := newBlockIndex(filed)
		for range 50 {
			addr := address.Draw(t, "asked")
			var got, want []uint32
			for b := ix.find(addr); b != nil; b = b.outer {
				for i := b.filed.begin; i < b.filed.end; i++ {
					got = append(got, i)
				}
			}
			for p, f := range filed {
				if p.Contains(addr) {
					want = append(want, f.begin)
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("%v lies in %v, want %v of %v", addr, got, want, filed)
			}
		}
		if ix.find(netip.Addr{}) != nil {
			t.Fatal("no address lies in a block")
		}
	})
}
