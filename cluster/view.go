package cluster

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/weirlimit/weir/ring"
)

// View is the state that a cluster has agreed on: its members, and the owner of each partition. It is
// immutable; a change is a new View with a higher number.
type View struct {
	// Number rises by one with every view of a cluster, from 1.
	Number uint64
	// Members are sorted by ID. Ring's indices point into them.
	Members []Member
	// Ring places the partitions on those members that are not leaving.
	Ring *ring.Ring
	// Epochs and Bases say by partition in which view its tenure was created again, and in
	// which one the tenure before that was, 0 if there was none. No tenure of an older epoch
	// counts.
	Epochs, Bases []uint64

	// Changed is the number of the view with which the ids of the members last changed, at most Number; 0 in a view that an
	// older version has written. Before are the members of the view before that one.
	Changed uint64
	Before  []Life
	// Ended are those of Members and Before that are known to have ended for good: they have left, or an operator has said so.
	Ended []Life
	// Waived is the number of a view up to which all count as adopted by half of the members from before it, although they may not
	// be: that was waited for in vain. GivenUp are those that were missing, the last maxGivenUp of them, until they are known to have ended.
	Waived  uint64
	GivenUp []Life
}

// Member is a node in a view.
type Member struct {
	ID          string `json:"id"`
	Address     string `json:"address"`     // host:port of gRPC
	Incarnation uint64 `json:"incarnation"` // of the node when it was admitted
	// Leaving says that the member owns nothing any more, but may still hold what others
	// have not fetched yet.
	Leaving bool `json:"leaving,omitempty"`
	// Gone says that it is no member any more, and that its address is kept because a partition names it.
	Gone bool `json:"-"`
}

// Index returns the index of the member with that id, and whether there is one.
func (v *View) Index(id string) (int, bool) {
	return slices.BinarySearchFunc(v.Members, id, func(m Member, id string) int {
		return strings.Compare(m.ID, id)
	})
}

// viewJSON is a view as it stands in etcd. The tables are in standard base64, one entry
// per partition: 16-bit little-endian member indices, and epochs as varints.
type viewJSON struct {
	Version  uint64   `json:"version"` // viewVersion; 0 of one that was written before there were versions
	Number   uint64   `json:"number"`
	Members  []Member `json:"members"`
	Owner    string   `json:"owner"`
	Standby  string   `json:"standby"`
	Epochs   string   `json:"epochs"`
	Bases    string   `json:"bases"`
	Changed  uint64   `json:"changed,omitempty"`
	Before   []Life   `json:"before,omitempty"`
	Ended    []Life   `json:"ended,omitempty"`
	Waived   uint64   `json:"waived,omitempty"`
	GivenUp  []Life   `json:"given_up,omitempty"`
	Checksum uint64   `json:"checksum,string"` // XXH64 of this object with checksum "0"
}

// MarshalView encodes v for etcd.
func MarshalView(v *View) ([]byte, error) {
	owner, standby := v.Ring.Tables()
	j := viewJSON{
		Version: viewVersion, Number: v.Number, Members: v.Members, Owner: packTable(owner), Standby: packTable(standby),
		Epochs: packEpochs(v.Epochs), Bases: packEpochs(v.Bases),
		Changed: v.Changed, Before: v.Before, Ended: v.Ended, Waived: v.Waived, GivenUp: v.GivenUp,
	}
	sum, err := j.sum()
	if err != nil {
		return nil, err
	}
	j.Checksum = sum
	return json.Marshal(j)
}

// UnmarshalView decodes what MarshalView wrote and refuses what is damaged. The error is a *VersionError if another version
// of this software has written it.
func UnmarshalView(b []byte) (*View, error) {
	var j viewJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return nil, fmt.Errorf("view: %w", err)
	}
	if err := checkVersion(fmt.Sprintf("view %d", j.Number), j.Version, viewVersion); err != nil {
		return nil, err // a checksum of what is not read says nothing
	}
	want := j.Checksum
	got, err := j.sum()
	if err != nil {
		return nil, fmt.Errorf("view: %w", err)
	}
	if got != want {
		return nil, fmt.Errorf("view %d: checksum is %d, content has %d", j.Number, want, got)
	}
	owner, err := unpackTable(j.Owner)
	if err != nil {
		return nil, fmt.Errorf("view %d: owner: %w", j.Number, err)
	}
	standby, err := unpackTable(j.Standby)
	if err != nil {
		return nil, fmt.Errorf("view %d: standby: %w", j.Number, err)
	}
	for i := 1; i < len(j.Members); i++ {
		if j.Members[i-1].ID >= j.Members[i].ID {
			return nil, fmt.Errorf("view %d: members are not sorted by unique id", j.Number)
		}
	}
	r, err := ring.FromTables(owner, standby, len(j.Members))
	if err != nil {
		return nil, fmt.Errorf("view %d: %w", j.Number, err)
	}
	v := &View{
		Number: j.Number, Members: j.Members, Ring: r,
		Changed: j.Changed, Before: j.Before, Ended: j.Ended, Waived: j.Waived, GivenUp: j.GivenUp,
	}
	if v.Epochs, err = unpackEpochs(j.Epochs, len(owner)); err != nil {
		return nil, fmt.Errorf("view %d: epochs: %w", j.Number, err)
	}
	if v.Bases, err = unpackEpochs(j.Bases, len(owner)); err != nil {
		return nil, fmt.Errorf("view %d: bases: %w", j.Number, err)
	}
	return v, v.check()
}

// check refuses what no writer of views writes.
func (v *View) check() error {
	if v.Changed > v.Number || v.Waived > v.Number {
		return fmt.Errorf("view %d: it speaks of views %d and %d, which come later", v.Number, v.Changed, v.Waived)
	}
	for p := range v.Epochs {
		if v.Epochs[p] > v.Number || v.Bases[p] >= v.Epochs[p] {
			return fmt.Errorf("view %d: partition %d has epoch %d after epoch %d", v.Number, p, v.Epochs[p], v.Bases[p])
		}
		if m := v.Members[v.Ring.Owner(uint32(p))]; m.Leaving {
			return fmt.Errorf("view %d: partition %d belongs to %s, which is leaving", v.Number, p, m.ID)
		}
	}
	return nil
}

func (j viewJSON) sum() (uint64, error) {
	j.Checksum = 0
	b, err := json.Marshal(j)
	return xxhash.Sum64(b), err
}

func packTable(t []uint16) string {
	b := make([]byte, 0, 2*len(t))
	for _, m := range t {
		b = binary.LittleEndian.AppendUint16(b, m)
	}
	return base64.StdEncoding.EncodeToString(b)
}

func unpackTable(s string) ([]uint16, error) {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return nil, err
	}
	if len(b)%2 != 0 {
		return nil, fmt.Errorf("%d bytes are no table of 16-bit indices", len(b))
	}
	t := make([]uint16, len(b)/2)
	for i := range t {
		t[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	return t, nil
}

func packEpochs(epochs []uint64) string {
	b := make([]byte, 0, 2*len(epochs))
	for _, e := range epochs {
		b = binary.AppendUvarint(b, e)
	}
	return base64.StdEncoding.EncodeToString(b)
}

func unpackEpochs(s string, partitions int) ([]uint64, error) {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return nil, err
	}
	epochs := make([]uint64, 0, partitions)
	for len(b) > 0 && len(epochs) < partitions {
		e, n := binary.Uvarint(b)
		if n <= 0 {
			break
		}
		epochs, b = append(epochs, e), b[n:]
	}
	if len(b) > 0 || len(epochs) != partitions {
		return nil, fmt.Errorf("they are not the varints of %d partitions", partitions)
	}
	return epochs, nil
}

// partyAt returns member i as one that is spoken to.
func (v *View) partyAt(i int) party { return party{v.Members[i].ID, v.Members[i].Incarnation} }

// claim returns what the view says about a partition.
func (v *View) claim(p uint32) claim {
	return claim{view: v.Number, epoch: v.Epochs[p], base: v.Bases[p], owner: v.partyAt(v.Ring.Owner(p))}
}

// Present returns the members of a view that are not gone, also of none.
func (v *View) Present() []Member {
	if v == nil {
		return nil
	}
	if !slices.ContainsFunc(v.Members, isGone) {
		return v.Members
	}
	return slices.DeleteFunc(slices.Clone(v.Members), isGone)
}

func isGone(m Member) bool { return m.Gone }

// IsMember reports whether a view, also none, has a member of that id that is not gone.
func (v *View) IsMember(id string) bool {
	i, named := viewIndex(v, id)
	return named && !v.Members[i].Gone
}
