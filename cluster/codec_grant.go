package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/shard"
)

// Bounds of messages with grants.
const (
	maxGrantBatch = 500      // grants of one message
	grantBytes    = 64 << 10 // of one message, before the last of them, which may take a hundred
)

// Grants travel as requests, of one take each that costs nothing, behind which stands what
// was granted: the 16 bytes of a state, little-endian, or the length of a long counter, u,
// and the counter.

func appendGrants(b []byte, grants []shard.Grant) []byte {
	for i := range grants {
		g := &grants[i]
		b = appendRequest(b, opDecide, 0, &shard.Group{Takes: []shard.Take{{Key: g.Key, Limit: g.Limit}}})
		if g.Long == nil {
			b = binary.LittleEndian.AppendUint64(b, g.State.A)
			b = binary.LittleEndian.AppendUint64(b, g.State.B)
			continue
		}
		long := g.Long.AppendBinary(nil)
		b = binary.AppendUvarint(b, uint64(len(long)))
		b = append(b, long...)
	}
	return b
}

// packGrants encodes the first n of grants, as many as one message holds.
func packGrants(grants []shard.Grant) (encoded []byte, n int) {
	for n < min(len(grants), maxGrantBatch) && len(encoded) < grantBytes {
		encoded = appendGrants(encoded, grants[n:n+1])
		n++
	}
	return encoded, n
}

// maxGrantsBytes is of one batch of grants; the last one of a batch may be a log.
const maxGrantsBytes = grantBytes + algorithms.MaxLongBytes + 1<<10

// appendGrantBatches appends grants, for eachGrantBatch: batches with their lengths.
func appendGrantBatches(b []byte, grants []shard.Grant) []byte {
	for len(grants) > 0 {
		batch, n := packGrants(grants)
		b = append(binary.AppendUvarint(b, uint64(len(batch))), batch...)
		grants = grants[n:]
	}
	return b
}

// eachGrantBatch calls f for each batch, until it fails.
func eachGrantBatch(b []byte, f func(batch []byte) error) error {
	for rest := (reader{frame: b}); rest.more(); {
		batch := rest.fixed(int(rest.varint("grants", maxGrantsBytes)))
		if rest.err != nil {
			return rest.err
		}
		if err := f(batch); err != nil {
			return err
		}
	}
	return nil
}

func parseGrants(b []byte) ([]shard.Grant, error) {
	r := reader{frame: b}
	var grants []shard.Grant
	for r.more() && len(grants) <= maxGrantBatch {
		grants = append(grants, r.grant())
	}
	if r.err == nil && len(grants) > maxGrantBatch {
		return nil, fmt.Errorf("more than %d", maxGrantBatch)
	}
	return grants, r.err
}

func (r *reader) grant() shard.Grant {
	var q request
	takes := r.request(&q, nil)
	if r.err == nil && (q.op != opDecide || len(takes) != 1) {
		r.fail(errors.New("it is not about one counter"))
	}
	if r.err != nil {
		return shard.Grant{}
	}
	g := shard.Grant{Key: takes[0].Key, Limit: takes[0].Limit}
	if !g.Limit.Algorithm.Long() {
		g.State = algorithms.State{A: r.uint64(), B: r.uint64()}
		return g
	}
	g.Long = new(algorithms.Long)
	if err := g.Long.UnmarshalBinary(r.fixed(int(r.varint("long", algorithms.MaxLongBytes)))); err != nil {
		r.fail(err)
	}
	return g
}
