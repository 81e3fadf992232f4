package backtest

import (
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the sample logs of docs/samples")

// sampleLine is a line of a sample before it is written.
type sampleLine struct {
	at   time.Time
	text string
}

// apiLog is a morning of an API in the combined format: sixty people with pauses, a crawler that asks every 2 s, a
// partner's job at each full hour, and a burst of all people at noon.
func apiLog() []byte {
	r := rand.New(rand.NewPCG(18, 6))
	begin := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	var lines []sampleLine
	add := func(at time.Time, ip, user, method, path string, status int, agent string) {
		lines = append(lines, sampleLine{at, fmt.Sprintf("%s - %s [%s] \"%s %s HTTP/1.1\" %d %d \"-\" \"%s\"\n",
			ip, user, at.Format("02/Jan/2006:15:04:05 -0700"), method, path, status, 200+r.IntN(4000), agent)})
	}
	paths := []string{"/api/v1/posts", "/api/v1/posts?page=2", "/api/v1/users/me", "/api/v1/search?q=weir", "/api/v1/comments"}
	for u := range 60 {
		ip, user := fmt.Sprintf("198.51.100.%d", u+1), fmt.Sprintf("user%02d", u+1)
		visit := func(at time.Time, requests int) {
			for range requests {
				method, status := "GET", 200
				if r.IntN(8) == 0 {
					method, status = "POST", 201
				}
				add(at, ip, user, method, paths[r.IntN(len(paths))], status, "Mozilla/5.0 (X11; Linux x86_64)")
				at = at.Add(time.Duration(500+r.IntN(9000)) * time.Millisecond)
			}
		}
		for range 3 + r.IntN(4) {
			visit(begin.Add(time.Duration(r.IntN(4*3600))*time.Second), 3+r.IntN(10))
		}
		visit(begin.Add(3*time.Hour+time.Duration(r.IntN(60))*time.Second), 8+r.IntN(10)) // noon
	}
	for i := range 1800 {
		at := begin.Add(90*time.Minute + time.Duration(i)*2*time.Second + time.Duration(r.IntN(300))*time.Millisecond)
		add(at, "203.0.113.77", "-", "GET", fmt.Sprintf("/api/v1/posts/%d", 1000+i), 200, "ExampleBot/2.1 (+https://bot.example/)")
	}
	for hour := range 4 {
		for i := range 90 {
			at := begin.Add(time.Duration(hour)*time.Hour + time.Duration(i)*300*time.Millisecond)
			add(at, "192.0.2.10", "partner", "POST", "/api/v1/import", 202, "partner-sync/1.4")
		}
	}
	return inOrder(lines)
}

// loginLog is a login page under attack, one object of JSON per line: people who mistype at times, and for half an
// hour two hundred addresses that try passwords on twenty accounts.
func loginLog() []byte {
	r := rand.New(rand.NewPCG(18, 7))
	begin := time.Date(2026, 3, 3, 1, 0, 0, 0, time.UTC)
	var lines []sampleLine
	add := func(at time.Time, ip, user string, status int, agent string) {
		lines = append(lines, sampleLine{at, fmt.Sprintf("{\"time\":%q,\"ip\":%q,\"user\":%q,\"method\":\"POST\",\"endpoint\":\"/login\",\"status\":%d,\"user_agent\":%q}\n",
			at.Format("2006-01-02T15:04:05.000Z07:00"), ip, user, status, agent)})
	}
	for u := range 150 {
		ip, user := fmt.Sprintf("198.51.100.%d", u+1), fmt.Sprintf("member%03d", u+1)
		at := begin.Add(time.Duration(r.IntN(7000)) * time.Second)
		for range r.IntN(3) {
			add(at, ip, user, 401, "Mozilla/5.0 (iPhone)")
			at = at.Add(time.Duration(4+r.IntN(20)) * time.Second)
		}
		add(at, ip, user, 200, "Mozilla/5.0 (iPhone)")
	}
	for i := range 3000 {
		at := begin.Add(45*time.Minute + time.Duration(i)*600*time.Millisecond + time.Duration(r.IntN(500))*time.Millisecond)
		add(at, fmt.Sprintf("203.0.113.%d", 1+r.IntN(200)), fmt.Sprintf("member%03d", 1+r.IntN(20)), 401, "python-requests/2.31")
	}
	return inOrder(lines)
}

func inOrder(lines []sampleLine) []byte {
	slices.SortStableFunc(lines, func(a, b sampleLine) int { return a.at.Compare(b.at) })
	var out bytes.Buffer
	for _, l := range lines {
		out.WriteString(l.text)
	}
	return out.Bytes()
}

var samples = map[string]func() []byte{"api.log.gz": apiLog, "login.log.gz": loginLog}

// The samples in docs are what the generator writes.
func TestSamples(t *testing.T) {
	for name, generate := range samples {
		path := filepath.Join("../../docs/samples", name)
		want := generate()
		if *update {
			var out bytes.Buffer
			w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression)
			if _, err := w.Write(want); err != nil || w.Close() != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		packed, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(z); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is out of date: run go test ./internal/backtest -run TestSamples -update (%v)", path, err)
		}
	}
}
