package xds

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weirlimit/weir/rules"
)

// The file of the last good resources is a line that says what it is, in which format, and the XXH64 of the rest, which is JSON.
const (
	keptMark    = "weir xds rules " // its version follows
	keptVersion = 1
)

// lastGood is the JSON of the file.
type lastGood struct {
	Server   string    `json:"server"`
	NodeID   string    `json:"node"`
	Asked    []byte    `json:"asked"` // Config.asked; not the metadata and headers themselves, which may be secrets
	Received time.Time `json:"received"`
	// Resources are RateLimitConfig messages as the server has sent them.
	Resources [][]byte `json:"resources"`
}

// resources returns what documents reads.
func (g *lastGood) resources() []*anypb.Any {
	list := make([]*anypb.Any, len(g.Resources))
	for i, value := range g.Resources {
		list[i] = &anypb.Any{TypeUrl: TypeURL, Value: value}
	}
	return list
}

func (g *lastGood) encode() ([]byte, error) {
	body, err := json.Marshal(g)
	if err != nil {
		return nil, err
	}
	return append(fmt.Appendf(nil, "%s%d %016x\n", keptMark, keptVersion, xxhash.Sum64(body)), body...), nil
}

// asked returns the SHA-256 of the metadata and the headers with which the server is asked, by which it may choose the rules.
func (c *Config) asked() []byte {
	h := sha256.New()
	for _, pairs := range []map[string]string{c.Metadata, c.Headers} {
		_ = binary.Write(h, binary.BigEndian, uint64(len(pairs))) // a hash returns no error
		for _, key := range slices.Sorted(maps.Keys(pairs)) {
			for _, text := range []string{key, pairs[key]} {
				_ = binary.Write(h, binary.BigEndian, uint64(len(text)))
				_, _ = io.WriteString(h, text)
			}
		}
	}
	return h.Sum(nil)
}

// parseLastGood reads what encode returns. The error says why this node cannot use it.
func parseLastGood(data []byte, c *Config) (*lastGood, error) {
	head, body, _ := bytes.Cut(data, []byte("\n"))
	var version uint64
	var g lastGood
	if len(data) > maxKept {
		return nil, fmt.Errorf("it has more than %d bytes", maxKept)
	}
	if _, err := fmt.Sscanf(string(head), keptMark+"%d ", &version); err != nil {
		return nil, fmt.Errorf("it does not begin with %q, so weir has not written it", keptMark)
	}
	if version != keptVersion {
		return nil, fmt.Errorf("it has format %d, and this version of weir reads format %d", version, keptVersion)
	}
	if want := fmt.Sprintf("%s%d %016x", keptMark, keptVersion, xxhash.Sum64(body)); string(head) != want {
		return nil, fmt.Errorf("it is damaged: its first line is %q, and %q would be that of its content", head, want)
	}
	if err := json.Unmarshal(body, &g); err != nil {
		return nil, err
	}
	if g.Server != c.Server || g.NodeID != c.NodeID {
		return nil, fmt.Errorf("it has the rules of the server %s for node %q, and this node asks %s for node %q", g.Server, g.NodeID, c.Server, c.NodeID)
	}
	if !bytes.Equal(g.Asked, c.asked()) {
		return nil, errors.New("it has the rules for other metadata or headers than those with which this node asks now (--xds-metadata, --xds-headers), or for unknown ones")
	}
	return &g, nil
}

// readLastGood reads the file c.Keep. It returns nil if there is none.
func readLastGood(c *Config) (*lastGood, error) {
	f, err := os.Open(c.Keep)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(f, maxKept+1))
	if err != nil {
		return nil, err
	}
	return parseLastGood(data, c)
}

// writeLastGood replaces a file. A reader sees the old or the new one, even if the machine dies.
func writeLastGood(path string, g *lastGood) error {
	data, err := g.encode()
	if err != nil {
		return err
	}
	name := path + ".new"
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync())
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(name, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// lastGoodFile writes the last good resources to a file, in the background, so that its caller never waits for the disk. Its
// methods are safe for concurrent use.
type lastGoodFile struct {
	path string
	log  *slog.Logger
	slot chan struct{} // it is filled when there is something to write

	saved [sha256.Size]byte // the hash of the resources in the file, zero if it is not known. Owned by run.

	mu     sync.Mutex
	latest *lastGood         // guarded by mu; what is to be in the file, read-only
	hash   [sha256.Size]byte // guarded by mu; of its resources
	err    error             // guarded by mu; why it is not there
}

// keep has resources written.
func (f *lastGoodFile) keep(g *lastGood, hash [sha256.Size]byte) {
	f.mu.Lock()
	f.latest, f.hash = g, hash
	f.mu.Unlock()
	select {
	case f.slot <- struct{}{}:
	default: // it has not been written since
	}
}

// run writes until ctx ends, and once more then if need be.
func (f *lastGoodFile) run(ctx context.Context) {
	again := time.NewTimer(keepAgainIn)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			select {
			case <-f.slot:
				f.save()
			default:
			}
			return
		case <-f.slot:
		case <-again.C:
			if f.Err() == nil {
				continue
			}
		}
		f.save()
		again.Reset(keepAgainIn)
	}
}

// save writes the file, unless it has these resources already, and logs when that begins to fail and when it works again.
func (f *lastGoodFile) save() {
	f.mu.Lock()
	g, hash, before := f.latest, f.hash, f.err
	f.mu.Unlock()
	if hash == f.saved {
		return
	}
	err := writeLastGood(f.path, g)
	if f.saved = hash; err != nil {
		f.saved = [sha256.Size]byte{} // it may have failed before or after the file was replaced
	}
	f.mu.Lock()
	f.err = err
	f.mu.Unlock()
	switch {
	case err != nil && before == nil:
		f.log.Error("the rules of the xDS server cannot be written to disk, so a start without the server would have older ones or none", "file", f.path, "error", err)
	case err == nil && before != nil:
		f.log.Info("the rules of the xDS server are written to disk again", "file", f.path)
	}
}

// Err returns why the last good resources are not in the file, nil if they are.
func (f *lastGoodFile) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// openLastGood reads what an earlier run has kept, which is used when the server is away.
func (s *Source) openLastGood() {
	if s.cfg.Keep == "" {
		return
	}
	s.file = &lastGoodFile{path: s.cfg.Keep, log: s.cfg.Logger, slot: make(chan struct{}, 1)}
	found, err := readLastGood(&s.cfg)
	if err != nil {
		s.cfg.Logger.Error("the rules of the xDS server that an earlier run has kept cannot be used and are ignored", "file", s.cfg.Keep, "error", err)
	}
	if found != nil {
		s.found, s.file.saved = found, hash(found.resources())
	}
}

// recallLater uses what an earlier run has kept if the server has sent nothing after a while.
func (s *Source) recallLater(ctx context.Context) {
	late := time.NewTimer(keptPatience)
	defer late.Stop()
	select {
	case <-ctx.Done():
	case <-s.received:
	case <-late.C:
		s.recall(fmt.Errorf("the server has sent no rules for %v", keptPatience))
	}
}

// recall puts in force what an earlier run has kept, unless the server has sent rules, and says why.
func (s *Source) recall(why error) {
	s.putting.Lock()
	defer s.putting.Unlock()
	found := s.found
	s.found = nil
	if found == nil {
		return
	}
	refused := s.Err() // what this server has sent, if it is bad
	docs, err := documents(found.resources())
	if err == nil {
		err = s.putReceived(docs, found.Received)
	}
	if refused != nil {
		s.Refuse(refused) // it is still refused, and health is to name it
	}
	if err != nil {
		s.cfg.Logger.Error("the rules of the xDS server that an earlier run has kept are refused", "file", s.cfg.Keep, "error", err)
		return
	}
	s.cfg.Logger.Warn("starting from the rules that the xDS server sent to an earlier run",
		"server", s.cfg.Server, "file", s.cfg.Keep, "received", found.Received, "rules", s.Set().Len(), "reason", why)
	s.first.Do(func() { close(s.received) })
}

// use puts resources of the server in force, and has them kept.
func (s *Source) use(resources []*anypb.Any, content [sha256.Size]byte) error {
	s.putting.Lock()
	defer s.putting.Unlock()
	docs, err := documents(resources)
	if err != nil {
		s.Refuse(err)
		return err
	}
	if err := s.putReceived(docs, time.Time{}); err != nil {
		return err
	}
	s.found = nil
	s.first.Do(func() { close(s.received) })
	if s.file != nil {
		good := &lastGood{Server: s.cfg.Server, NodeID: s.cfg.NodeID, Asked: s.cfg.asked(), Received: s.cfg.Now().UTC(), Resources: make([][]byte, len(resources))}
		for i, r := range resources {
			good.Resources[i] = r.GetValue()
		}
		s.file.keep(good, content)
	}
	return nil
}

// putReceived puts documents in force for which KeptAt is to be keptAt. That is set first, for those that Put tells of the change.
func (s *Source) putReceived(docs []rules.Received, keptAt time.Time) error {
	before := s.KeptAt()
	s.setKeptAt(keptAt)
	err := s.Put(docs)
	if err != nil {
		s.setKeptAt(before)
	}
	return err
}

func (s *Source) setKeptAt(received time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keptAt = received
}

// KeptAt returns when the server sent the rules in force to an earlier run, while they are those of the file Config.Keep. It is the
// zero time once the server has sent rules, and before there are any.
func (s *Source) KeptAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keptAt
}

// KeepErr returns why the last good rules are not in the file Config.Keep, nil if they are, or if there is no such file.
func (s *Source) KeepErr() error {
	if s.file == nil {
		return nil
	}
	return s.file.Err()
}
