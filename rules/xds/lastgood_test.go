package xds

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weirlimit/weir/internal/xdstest"
	"github.com/weirlimit/weir/rules"
)

// keeping is config with a file.
func keeping(server, file string) Config {
	cfg := config(server)
	cfg.Keep = file
	return cfg
}

// run runs a source until stop is called.
func run(t *testing.T, cfg Config) (s *Source, changes <-chan *rules.Set, stop func()) {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	sets := make(chan *rules.Set, 100)
	s.OnChange(func(set *rules.Set) { sets <- set })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	return s, sets, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// A node that is started while the server is away has the last good rules of its last run, and says so until the server has sent
// rules again.
func TestStartWithoutTheServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules")
	server := xdstest.New(t, nil)
	server.Start(t)
	server.Set(t, "1", policy("a", "d", 5), policy("b", "e", 6))
	began := time.Now()
	s, changes, stop := run(t, keeping(server.Address, file))
	next(t, changes)
	server.Accepted(t, "1")
	server.Set(t, "bad", policy("a", "", 7)) // is not kept
	server.Refused(t)
	if !s.KeptAt().IsZero() || s.KeepErr() != nil {
		t.Errorf("with the server: kept at %v, %v", s.KeptAt(), s.KeepErr())
	}
	stop()
	server.Stop()

	var logs bytes.Buffer
	cfg := keeping(server.Address, file)
	cfg.Logger = slog.New(slog.NewTextHandler(&logs, nil))
	s, changes, stop = run(t, cfg)
	set := next(t, changes)
	<-s.Received()
	if limitOf(t, set, "d") != 5 || limitOf(t, set, "e") != 6 || s.Disconnected() == nil || s.Err() != nil {
		t.Errorf("without the server: %v, %v, %v", set.Documents(), s.Disconnected(), s.Err())
	}
	if at := s.KeptAt(); at.Before(began) || at.After(time.Now()) {
		t.Errorf("the rules were received at %v", at)
	}
	server.Start(t)
	server.Set(t, "1", policy("a", "d", 8))
	if set := next(t, changes); limitOf(t, set, "d") != 8 || limitOf(t, set, "e") != -1 || !s.KeptAt().IsZero() {
		t.Errorf("the server is back: %v, kept at %v", set.Documents(), s.KeptAt())
	}
	stop()
	if !strings.Contains(logs.String(), "starting from the rules that the xDS server sent to an earlier run") {
		t.Errorf("the log says nothing of it:\n%s", &logs)
	}
	server.Stop()
	_, changes, stop = run(t, keeping(server.Address, file))
	defer stop()
	if set := next(t, changes); limitOf(t, set, "d") != 8 {
		t.Errorf("what was kept later: %v", set.Documents())
	}
}

// A server that is there decides alone what is in force.
func TestServerComesBeforeTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules")
	server := xdstest.New(t, nil)
	server.Start(t)
	server.Set(t, "1", policy("a", "d", 5))
	writeFile(t, file, server.Address, xdstest.NodeID, 9)
	cfg := keeping(server.Address, file)
	s, changes := start(t, cfg)
	if set := next(t, changes); limitOf(t, set, "d") != 5 || !s.KeptAt().IsZero() {
		t.Errorf("first in force: %v", set.Documents())
	}
	until(t, "kept", func() bool {
		found, err := readLastGood(&cfg)
		return err == nil && proto.Equal(found.resources()[0], resourcesOf(t, 5)[0])
	})
	if s.recall(errNotYet); limitOf(t, s.Set(), "d") != 5 || !s.KeptAt().IsZero() {
		t.Errorf("the server is lost again: %v is in force", s.Set().Documents())
	}
}

// A server that is reached and sends nothing, or sends bad rules, does not keep a node from its last good ones.
func TestStartWithASilentServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	file := filepath.Join(t.TempDir(), "rules")
	writeFile(t, file, l.Addr().String(), xdstest.NodeID, 9)
	s, changes := start(t, keeping(l.Addr().String(), file))
	if set := next(t, changes); limitOf(t, set, "d") != 9 || s.KeptAt().IsZero() {
		t.Errorf("in force: %v", set.Documents())
	}
}

func TestStartWithBadRulesOfTheServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules")
	server := xdstest.New(t, nil)
	server.Start(t)
	server.Set(t, "bad", policy("a", "", 7))
	writeFile(t, file, server.Address, xdstest.NodeID, 9)
	s, changes := start(t, keeping(server.Address, file))
	server.Refused(t)
	if set := next(t, changes); limitOf(t, set, "d") != 9 {
		t.Errorf("in force: %v", set.Documents())
	}
	until(t, "named", func() bool { return s.Err() != nil && strings.Contains(s.Err().Error(), "cannot have empty domain") })
	for range 3 { // the same again is refused in the same words
		if detail := server.Refused(t).GetErrorDetail().GetMessage(); !strings.Contains(detail, "cannot have empty domain") {
			t.Errorf("a NACK says %q", detail)
		}
	}
}

// A file that is damaged, of another version, or of another server or node is ignored, and the log says why.
func TestKeptRulesRefused(t *testing.T) {
	const server, node = "127.0.0.1:1", "n"
	file := filepath.Join(t.TempDir(), "rules")
	writeFile(t, file, server, node, 9)
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parseLastGood(good, &Config{Server: server, NodeID: node}); err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 1
	for want, c := range map[string]struct {
		data         []byte
		server, node string
	}{
		"it is damaged":                {flipped, server, node},
		"would be that of its content": {good[:len(good)-1], server, node},
		"does not begin with":          {nil, server, node},
		"it has format 2":              {bytes.Replace(good, []byte("rules 1 "), []byte("rules 2 "), 1), server, node},
		`it has the rules of the server 127.0.0.1:1 for node "n", and this node asks 127.0.0.1:2 for node "n"`: {good, "127.0.0.1:2", node},
		`and this node asks 127.0.0.1:1 for node "m"`:                                                          {good, server, "m"},
		"it has more than": {make([]byte, maxKept+1), server, node},
	} {
		if err := os.WriteFile(file, c.data, 0o600); err != nil {
			t.Fatal(err)
		}
		var logs bytes.Buffer
		cfg := keeping(c.server, file)
		cfg.NodeID, cfg.Logger = c.node, slog.New(slog.NewTextHandler(&logs, nil))
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		s.recall(err)
		if text := strings.ReplaceAll(logs.String(), `\"`, `"`); !strings.Contains(text, want) || !s.Set().Missing() {
			t.Errorf("%s: %v is in force, the log is %s", want, s.Set().Documents(), text)
		}
	}
}

// Rules that were asked for with other metadata or headers may be those of another tenant, and are not used.
func TestKeptRulesOfAnotherTenant(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules")
	server := xdstest.New(t, nil)
	server.Start(t)
	server.Set(t, "1", policy("a", "d", 5))
	of := func(metadata, headers map[string]string) (cfg Config, logs *bytes.Buffer) {
		cfg, logs = keeping(server.Address, file), new(bytes.Buffer)
		cfg.Metadata, cfg.Headers, cfg.Logger = metadata, headers, slog.New(slog.NewTextHandler(logs, nil))
		return cfg, logs
	}
	env, tenant := map[string]string{"env": "prod", "zone": "z"}, map[string]string{"x-tenant": "secret-a"}
	cfg, _ := of(env, tenant)
	_, changes, stop := run(t, cfg)
	next(t, changes)
	server.Accepted(t, "1")
	stop()
	server.Stop()
	if text, err := os.ReadFile(file); err != nil || bytes.Contains(text, []byte("secret-a")) || bytes.Contains(text, []byte("prod")) {
		t.Errorf("the file is %s, %v", text, err)
	}
	for name, tc := range map[string]struct {
		metadata, headers map[string]string
		same              bool
	}{
		"same":             {maps.Clone(env), maps.Clone(tenant), true},
		"another value":    {env, map[string]string{"x-tenant": "secret-b"}, false},
		"other metadata":   {map[string]string{"env": "test", "zone": "z"}, tenant, false},
		"no headers":       {env, nil, false},
		"no metadata":      {nil, tenant, false},
		"swapped":          {tenant, env, false},
		"the bytes joined": {map[string]string{"env": "prodzone", "z": ""}, tenant, false},
	} {
		cfg, logs := of(tc.metadata, tc.headers)
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		s.recall(errNotYet)
		if used := !s.Set().Missing(); used != tc.same {
			t.Errorf("%s: used: %v", name, used)
		}
		if said := strings.Contains(logs.String(), "for other metadata or headers"); said == tc.same {
			t.Errorf("%s: the log is %s", name, logs)
		}
	}
}

// What cannot be written is named, and does no other harm.
func TestRulesOnBrokenDisk(t *testing.T) {
	inTheWay := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	server := xdstest.New(t, nil)
	server.Start(t)
	server.Set(t, "1", policy("a", "d", 5))
	s, changes := start(t, keeping(server.Address, filepath.Join(inTheWay, "rules")))
	if set := next(t, changes); limitOf(t, set, "d") != 5 {
		t.Errorf("in force: %v", set.Documents())
	}
	until(t, "named", func() bool { return s.KeepErr() != nil && strings.Contains(s.KeepErr().Error(), inTheWay) })
}

// resourcesOf are those of one policy for domain d.
func resourcesOf(t *testing.T, perHour uint32) []*anypb.Any {
	t.Helper()
	resource, err := anypb.New(policy("a", "d", perHour))
	if err != nil {
		t.Fatal(err)
	}
	return []*anypb.Any{resource}
}

// writeFile keeps one policy for domain d.
func writeFile(t *testing.T, path, server, node string, perHour uint32) {
	t.Helper()
	g := &lastGood{Server: server, NodeID: node, Asked: new(Config).asked(), Received: time.Now().Add(-time.Hour)}
	for _, r := range resourcesOf(t, perHour) {
		g.Resources = append(g.Resources, r.GetValue())
	}
	if err := writeLastGood(path, g); err != nil {
		t.Fatal(err)
	}
}

// A disk that works again has what is in force, also if that is what the file had before.
func TestRulesAsBeforeTheDiskBroke(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	k := &lastGoodFile{path: filepath.Join(dir, "rules"), log: slog.New(slog.DiscardHandler), slot: make(chan struct{}, 1)}
	save := func(perHour uint32) error {
		g := &lastGood{Server: "s", NodeID: "n", Asked: new(Config).asked()}
		for _, r := range resourcesOf(t, perHour) {
			g.Resources = append(g.Resources, r.GetValue())
		}
		k.keep(g, [sha256.Size]byte{byte(perHour)})
		k.save()
		return k.Err()
	}
	if err := errors.Join(os.Mkdir(dir, 0o700), save(5)); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil || save(6) == nil {
		t.Fatalf("%v, written to a directory that is gone", err)
	}
	if err := errors.Join(os.Mkdir(dir, 0o700), save(5)); err != nil {
		t.Fatal(err)
	}
	if g, err := readLastGood(&Config{Keep: k.path, Server: "s", NodeID: "n"}); err != nil || g == nil || !proto.Equal(g.resources()[0], resourcesOf(t, 5)[0]) {
		t.Errorf("the file has %v, %v", g, err)
	}
}
