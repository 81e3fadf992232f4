package ring

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// circle places partitions on the same points as the library does. It can leave one member out without
// hashing and sorting the points of all others again: Build takes 17 ms for 30 members instead of 500.
type circle struct {
	params  Params
	members int
	points  []point // sorted by hash
	first   []int   // by partition, where it begins to look for a member
}

type point struct {
	hash   uint64
	member uint16
}

func newCircle(p Params, names []string) *circle {
	c := &circle{params: p, members: len(names), points: make([]point, 0, len(names)*p.ReplicationFactor), first: make([]int, p.Partitions)}
	var key []byte
	for i, name := range names {
		for replica := range p.ReplicationFactor {
			key = strconv.AppendInt(key[:0], int64(replica), 10)
			key = append(append(key, ':'), name...)
			c.points = append(c.points, point{xxhash.Sum64(key), uint16(i)})
		}
	}
	slices.SortFunc(c.points, func(a, b point) int { return cmp.Compare(a.hash, b.hash) })
	for part := range c.first {
		key = binary.LittleEndian.AppendUint64(key[:0], uint64(part))
		at, _ := slices.BinarySearchFunc(c.points, xxhash.Sum64(key), func(p point, hash uint64) int { return cmp.Compare(p.hash, hash) })
		c.first[part] = at % len(c.points)
	}
	return c
}

// without returns the owners of the partitions in the ring of all members but that one.
func (c *circle) without(gone uint16) []uint16 {
	most := int(math.Ceil(float64(c.params.Partitions) / float64(c.members-1) * c.params.Load))
	owned := make([]int, c.members)
	owned[gone] = most // as if it had no room
	owner := make([]uint16, c.params.Partitions)
	for part := range owner {
		at := c.first[part]
		for owned[c.points[at].member] == most {
			at = (at + 1) % len(c.points)
		}
		owner[part] = c.points[at].member
		owned[owner[part]]++
	}
	return owner
}
