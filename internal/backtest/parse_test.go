package backtest

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// read replays nothing: it returns what a parser makes of lines, one text each.
func read(t testing.TB, format string, wanted fields, timeField string, lines ...string) (got []string) {
	t.Helper()
	p, err := newParser(format, wanted, timeField)
	if err != nil {
		t.Fatal(err)
	}
	p.begin()
	for _, line := range lines {
		r := record{values: make([]string, len(wanted))}
		if f := p.parse([]byte(line), &r); f != fine {
			got = append(got, fmt.Sprintf("fault %d", f))
			continue
		}
		got = append(got, fmt.Sprintf("%s %q %s %q", time.Unix(0, r.time).UTC().Format(time.RFC3339Nano), r.values, r.status, r.agent))
	}
	return got
}

func TestParsers(t *testing.T) {
	const head = `127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] `
	for _, c := range []struct {
		name, format, wanted, time, line, want string
	}{
		{"combined", Combined, "remote_addr remote_user request_method path request_uri http_referer http_user_agent", "",
			`::1 - frank [10/Oct/2000:13:55:36 -0700] "GET /a.gif?x=1 HTTP/1.0" 200 2326 "http://e/x" "Mozilla \"4\" (x)"`,
			`2000-10-10T20:55:36Z ["::1" "frank" "GET" "/a.gif" "/a.gif?x=1" "http://e/x" "Mozilla \\\"4\\\" (x)"] 200 "Mozilla \\\"4\\\" (x)"`},
		{"combined, twice", Combined, "remote_addr path remote_addr path", "", head + `"GET / HTTP/1.0" 404 -`, `2000-10-10T20:55:36Z ["127.0.0.1" "/" "127.0.0.1" "/"] 404 ""`},
		{"envoy, twice", Envoy, "method method", "", `[2016-04-15T20:17:00Z] "POST / HTTP/2" 204 - 154 0 226 100 "9.9.9.9" "a" "b" "c" "d"`,
			`2016-04-15T20:17:00Z ["POST" "POST"] 204 "a"`},
		{"common", Combined, "remote_user path", "", head + `"GET / HTTP/1.0" 404 -`, `2000-10-10T20:55:36Z ["" "/"] 404 ""`},
		{"user with a space", Combined, "remote_user", "", `h - a b [29/Feb/2024:23:59:59 +0530] "GET / HTTP/1.0" 404 -`, `2024-02-29T18:29:59Z ["a b"] 404 ""`},
		{"no request", Combined, "request_method", "", head + `"\x16\x03" 400 0`, `2000-10-10T20:55:36Z [""] 400 ""`},
		{"no quote", Combined, "path", "", head + `"GET / HTTP/1.0 404 -`, "fault 3"},
		{"no status", Combined, "path", "", head + `"GET / HTTP/1.0"`, "fault 3"},
		{"month", Combined, "path", "", strings.Replace(head, "Oct", "Okt", 1) + `"GET / HTTP/1.0" 404 -`, "fault 4"},
		{"envoy", Envoy, "x_forwarded_for method path authority upstream_host", "",
			`[2016-04-15T20:17:00.310Z] "POST /api?q HTTP/2" 204 - 154 0 226 100 "9.9.9.9, 10.0.35.28" "nsq2http" "cc21" "locations" "tcp://10.0.2.1:80"`,
			`2016-04-15T20:17:00.31Z ["10.0.35.28" "POST" "/api" "locations" "tcp://10.0.2.1:80"] 204 "nsq2http"`},
		{"json", JSON, "user claims.sub n ok", "", `{"x":[1,{"user":"no"}],"user":"a\u00e9\ud83d\ude00\n","claims":{"sub":"s"},"n":1.5e3,"ok":true,"time":"2026-01-02T03:04:05.123456789+01:00"}`,
			`2026-01-02T02:04:05.123456789Z ["aé😀\n" "s" "1.5e3" "true"] `}, // status and agent follow
		{"json with a dot in a name", JSON, "a.b", "", `{"a.b":"x","ts":1700000000.25}`, `2023-11-14T22:13:20.25Z ["x"] `},
		{"json in milliseconds", JSON, "a", "", `{"a":null,"ts":1700000000250}`, `2023-11-14T22:13:20.25Z [""] `},
		{"json of a time that wins", JSON, "a", "", `{"ts":5,"time":"2026-01-02T03:04:05Z"}`, `2026-01-02T03:04:05Z [""] `},
		{"json with a named time", JSON, "a", "when", `{"time":5,"when":7}`, `1970-01-01T00:00:07Z [""] `},
		{"json without a time", JSON, "a", "", `{"a":"x"}`, "fault 4"},
		{"json that ends early", JSON, "a", "", `{"a":"x"`, "fault 3"},
		{"json and more", JSON, "a", "", `{"ts":5} x`, "fault 3"},
		{"json without a comma", JSON, "a", "", `{"a":"x" "ts":5}`, "fault 3"},
	} {
		got := read(t, c.format, strings.Fields(c.wanted), c.time, c.line)[0]
		if c.format == JSON && !strings.HasPrefix(c.want, "fault") {
			c.want += ` ""`
		}
		if got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
	got := strings.Join(read(t, CSV, fields{"user", "path"}, "", `time,user,"path",status`, `2026-01-02T03:04:05Z,"a ""b"", c",/x,200`, `5,a,b`, `5,a,b,c,d`, `x,a,b,c`, `5,"a,b,c`, `5,,b,`), "\n")
	want := "fault 2\n" + `2026-01-02T03:04:05Z ["a \"b\", c" "/x"] 200 ""` + "\nfault 3\nfault 3\nfault 4\nfault 3\n" + `1970-01-01T00:00:05Z ["" "b"]  ""`
	if got != want {
		t.Errorf("csv: got\n%s\nwant\n%s", got, want)
	}
}

// Instants are those of package time, and what is none is refused.
func TestInstants(t *testing.T) {
	for at := time.Date(1999, 12, 31, 23, 59, 58, 0, time.UTC); at.Year() < 2101; at = at.Add(7*time.Hour*24 + 13*time.Minute + 7*time.Second) {
		for _, place := range []*time.Location{time.UTC, time.FixedZone("", -(3*3600 + 1800))} {
			local := at.In(place)
			if got, ok := parseInstant([]byte(local.Format(time.RFC3339))); !ok || got != at.UnixNano() {
				t.Fatalf("%s: %d %t", local, got, ok)
			}
			var c commonLog
			if got, ok := c.parse([]byte(local.Format("02/Jan/2006:15:04:05 -0700"))); !ok || got != at.UnixNano() {
				t.Fatalf("%s: %d %t", local, got, ok)
			}
		}
	}
	for _, text := range []string{"", "2026-13-01T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01T00:00:00", "2026-01-01T00:00:00+1", "99999999999999999999", "-5", "1e9", "5.x", "9999-01-01T00:00:00Z"} {
		if got, ok := parseInstant([]byte(text)); ok {
			t.Errorf("%q is %d", text, got)
		}
	}
}

// What is no line of a format has no effect but a fault.
func FuzzParsers(f *testing.F) {
	f.Add(`127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 404 -`)
	f.Add(`{"a":{"b":["\ud800\u0041",1,null]},"time":"2026-01-02T03:04:05.5Z"}`)
	f.Add(`5,"a ""b""",c`)
	f.Add(`[2016-04-15T20:17:00.310Z] "POST /api?q HTTP/2" 204 - 154 0 226 100 "9.9.9.9, 10.0.35.28" "nsq2http"`)
	f.Add(`{"time":"2026-01-02T03:04:05Z","keys":"clear","descriptors":[{"entries":[{"key":"a","value":"b"}],"tokens":1,"limits":[{"rule":"r","index":0,"counter":"00000000000000000000000000000000","at":5}]}]}`)
	f.Fuzz(func(t *testing.T, line string) {
		if line == "" {
			return // Run leaves it out
		}
		for format, wanted := range map[string]fields{Combined: {"path", "remote_user"}, Envoy: {"path"}, JSON: {"a.b", "a"}, CSV: {"a"}, Decisions: {}} {
			p, err := newParser(format, wanted, "")
			if err != nil {
				t.Fatal(err)
			}
			p.begin()
			if format == CSV {
				p.parse([]byte("time,a,b"), &record{values: make([]string, len(wanted))})
			}
			for range 2 {
				r := record{values: make([]string, len(wanted))}
				if p.parse([]byte(line), &r) == fine && r.time < 0 {
					t.Errorf("%s: an instant of %d", format, r.time)
				}
			}
		}
	})
}
