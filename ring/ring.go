// Package ring provides the consistent-hash ring, which places each partition on an owner and a standby.
//
// A Ring is an immutable value of two tables. It is built once per cluster view,
// on github.com/buraksezer/consistent (consistent hashing with bounded loads,
// Mirrokni, Thorup and Zadimoghaddam 2016) with xxhash, and looked up without
// locks or allocations.
package ring

import (
	"errors"
	"fmt"
	"slices"

	"github.com/buraksezer/consistent"
	"github.com/cespare/xxhash/v2"
)

// Params shape a ring. All nodes of a cluster must use the same.
type Params struct {
	// Partitions is how many partitions there are, 64 to 65536. Best a prime.
	Partitions int `json:"partitions"`
	// ReplicationFactor is how many points each member has on the ring, 1 to 1000.
	ReplicationFactor int `json:"replication_factor"`
	// Load is how much more than the mean a member may own, 1 to 10.
	Load float64 `json:"load"`
}

// DefaultParams suits up to 25 members, with 40 partitions each.
var DefaultParams = Params{Partitions: 1021, ReplicationFactor: 100, Load: 1.25}

// partitionsPerMember is the least number of partitions per member for which the
// bounded load stays a useful bound.
const partitionsPerMember = 8

// MaxMemberName is the longest name of a member, in bytes.
const MaxMemberName = 128

// Validate reports the first parameter that is out of bounds, by name and value.
// The library would panic or loop for ever on some of them.
func (p Params) Validate() error {
	switch {
	case p.Partitions < 64 || p.Partitions > 1<<16:
		return fmt.Errorf("partitions: %d is not between 64 and 65536", p.Partitions)
	case p.ReplicationFactor < 1 || p.ReplicationFactor > 1000:
		return fmt.Errorf("replication_factor: %d is not between 1 and 1000", p.ReplicationFactor)
	case !(p.Load >= 1 && p.Load <= 10): // written so that NaN fails
		return fmt.Errorf("load: %v is not between 1 and 10", p.Load)
	}
	return nil
}

// MaxMembers is how many members a ring of these parameters may have.
func (p Params) MaxMembers() int { return p.Partitions / partitionsPerMember }

// Ring holds the owner and the standby of each partition. Members are indices into the sorted list of names
// that the ring was built from. The zero value has no partitions.
type Ring struct {
	owner, standby []uint16
	members        int
}

// Build places the partitions on members. The order of members does not matter:
// index i in the result means the i-th name in sorted order.
//
// It takes time in proportion to members x partitions and is meant for the one
// node that writes the view; the others use FromTables.
func Build(p Params, members []string) (*Ring, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	sorted := slices.Sorted(slices.Values(members))
	if err := validateMembers(p, sorted); err != nil {
		return nil, err
	}
	r := &Ring{owner: place(p, sorted), members: len(sorted)}
	r.standby = slices.Clone(r.owner)
	if len(sorted) == 1 {
		return r, nil
	}
	// The standby of a partition is the owner in the ring without its owner, so
	// that a takeover moves nothing twice. The library's GetClosestN names
	// another node in most cases.
	all := newCircle(p, sorted)
	for i := range sorted {
		without := all.without(uint16(i))
		for part, owner := range r.owner {
			if int(owner) == i {
				r.standby[part] = without[part]
			}
		}
	}
	return r, nil
}

func validateMembers(p Params, sorted []string) error {
	if len(sorted) == 0 {
		return errors.New("members: a ring needs at least one")
	}
	if most := p.MaxMembers(); len(sorted) > most {
		return fmt.Errorf("members: %d are more than the %d that %d partitions allow", len(sorted), most, p.Partitions)
	}
	for i, name := range sorted {
		if name == "" || len(name) > MaxMemberName {
			return fmt.Errorf("members: name %q has %d bytes, not 1 to %d", name, len(name), MaxMemberName)
		}
		if i > 0 && sorted[i-1] == name {
			return fmt.Errorf("members: %q stands there twice", name)
		}
	}
	return nil
}

type member string

func (m member) String() string { return string(m) }

type xxHasher struct{}

func (xxHasher) Sum64(b []byte) uint64 { return xxhash.Sum64(b) }

// place asks the library where each partition goes.
func place(p Params, names []string) []uint16 {
	members, index := make([]consistent.Member, len(names)), make(map[string]uint16, len(names))
	for i, name := range names {
		members[i], index[name] = member(name), uint16(i)
	}
	c := consistent.New(members, consistent.Config{
		Hasher:            xxHasher{},
		PartitionCount:    p.Partitions,
		ReplicationFactor: p.ReplicationFactor,
		Load:              p.Load,
	})
	owner := make([]uint16, p.Partitions)
	for part := range owner {
		owner[part] = index[c.GetPartitionOwner(part).String()]
	}
	return owner
}

// FromTables returns the ring of tables that another node has built. It keeps
// the slices. They must be of one length and name only members below members.
func FromTables(owner, standby []uint16, members int) (*Ring, error) {
	if len(owner) == 0 || len(owner) != len(standby) {
		return nil, fmt.Errorf("tables: %d owners and %d standbys", len(owner), len(standby))
	}
	for part := range owner {
		if o, s := int(owner[part]), int(standby[part]); o >= members || s >= members {
			return nil, fmt.Errorf("tables: partition %d names owner %d and standby %d of %d members", part, o, s, members)
		}
	}
	return &Ring{owner: owner, standby: standby, members: members}, nil
}

// Renumber returns a ring of the given number of members, in which member i is index[i]. Members that are
// not in index own nothing.
func (r *Ring) Renumber(index []uint16, members int) (*Ring, error) {
	if len(index) != r.members {
		return nil, fmt.Errorf("index: %d entries for %d members", len(index), r.members)
	}
	renumbered := func(table []uint16) []uint16 {
		table = slices.Clone(table)
		for part, m := range table {
			table[part] = index[m]
		}
		return table
	}
	return FromTables(renumbered(r.owner), renumbered(r.standby), members)
}

// Partitions returns how many partitions there are.
func (r *Ring) Partitions() uint32 { return uint32(len(r.owner)) }

// Members returns how many members there are.
func (r *Ring) Members() int { return r.members }

// Owner returns the index of the member that owns the partition.
func (r *Ring) Owner(partition uint32) int { return int(r.owner[partition]) }

// Standby returns the index of the member that would own the partition if its
// owner were not there; the owner itself if it is alone.
func (r *Ring) Standby(partition uint32) int { return int(r.standby[partition]) }

// Tables returns the owners and standbys by partition. The caller must not
// change them.
func (r *Ring) Tables() (owner, standby []uint16) { return r.owner, r.standby }
