package view

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
)

// formatVersion is the version of the format in which views are stored. Version 1 is that of views that name ideal owners.
const formatVersion = 2

// VersionError says that this node does not read the version of something that is stored.
type VersionError struct {
	Subject    string // such as "view 7"
	Got, Reads uint64 // the versions; Got is 0 if none is given
}

// Error says what to do.
func (e *VersionError) Error() string {
	what, do := "an older", "start this node with that one"
	if e.Got > e.Reads {
		what, do = "a newer", "install that one on this node"
	}
	return fmt.Sprintf("%s is of version %d of its format, and this node reads version %d: %s version of weir has written it, %s",
		e.Subject, e.Got, e.Reads, what, do)
}

// header is what all versions have.
type header struct {
	Version uint64 `json:"version"`
	Number  uint64 `json:"number"`
}

// stored is a view as it stands in etcd.
type stored struct {
	header
	Members    []storedMember   `json:"members"`
	Electorate storedElectorate `json:"electorate"`
	Partitions int              `json:"partitions"` // how many there are in the table
	// Table is standard base64 of varints, by partition: the index of the owner; 2 x (Number - Term), plus 1 if there are predecessors;
	// 1 + the index of the standby, or 0; then how many predecessors there are, and their indices. Indices point into Members.
	Table    string `json:"table"`
	Checksum uint64 `json:"checksum,string"` // XXH64 of this object with checksum "0"
}

type storedMember struct {
	Life
	Address string `json:"address"`
	State   string `json:"state"`
}

type storedElectorate struct {
	Changed uint64 `json:"changed"`
	Before  []Life `json:"before,omitempty"`
	Ended   []Life `json:"ended,omitempty"`
	Waived  uint64 `json:"waived,omitempty"`
	GivenUp []Life `json:"given_up,omitempty"`
}

// Marshal encodes a view for etcd. The error names what in it Unmarshal would refuse.
func Marshal(v *View) ([]byte, error) {
	if err := v.check(); err != nil {
		return nil, fmt.Errorf("view %d: %w", v.Number, err)
	}
	s := stored{
		header: header{formatVersion, v.Number}, Electorate: storedElectorate(v.Electorate), Partitions: len(v.Partitions),
		Table: base64.StdEncoding.EncodeToString(v.appendTable(nil)),
	}
	for _, m := range v.Members {
		s.Members = append(s.Members, storedMember{m.Life, m.Address, m.State.String()})
	}
	sum, err := s.sum()
	if err != nil {
		return nil, err
	}
	s.Checksum = sum
	return json.Marshal(s)
}

// Unmarshal decodes what Marshal wrote, and refuses all else. The error is a *VersionError if another version of this software
// has written it.
func Unmarshal(b []byte) (*View, error) {
	var h header
	if err := json.Unmarshal(b, &h); err != nil {
		return nil, fmt.Errorf("view: %w", err)
	}
	if h.Version != formatVersion {
		return nil, &VersionError{fmt.Sprintf("view %d", h.Number), h.Version, formatVersion} // a checksum of what is not read says nothing
	}
	v, err := unmarshal(b)
	if err != nil {
		return nil, fmt.Errorf("view %d: %w", h.Number, err)
	}
	return v, nil
}

func unmarshal(b []byte) (*View, error) {
	var s stored
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("more follows its %d bytes", d.InputOffset())
	}
	sum, err := s.sum()
	if err != nil {
		return nil, err
	}
	if sum != s.Checksum {
		return nil, fmt.Errorf("checksum is %d, content has %d", s.Checksum, sum)
	}
	v, err := s.view()
	if err != nil {
		return nil, err
	}
	return v, v.check()
}

// sum returns the checksum.
func (s stored) sum() (uint64, error) {
	s.Checksum = 0
	b, err := json.Marshal(s)
	return xxhash.Sum64(b), err
}

// view returns the view, which is not checked yet.
func (s *stored) view() (*View, error) {
	v := &View{Number: s.Number, Electorate: Electorate(s.Electorate)}
	if len(s.Members) > maxMembers {
		return nil, fmt.Errorf("members: %d are more than %d", len(s.Members), maxMembers)
	}
	for i, m := range s.Members {
		state, err := stateNamed(m.State)
		if err != nil {
			return nil, fmt.Errorf("members[%d] (%s): %w", i, m.name(), err)
		}
		v.Members = append(v.Members, Member{m.Life, m.Address, state})
	}
	table, err := base64.StdEncoding.DecodeString(s.Table)
	if err != nil {
		return nil, fmt.Errorf("table: %w", err)
	}
	if s.Partitions < 1 || s.Partitions > maxPartitions || s.Partitions > len(table) {
		return nil, fmt.Errorf("partitions: %d is not between 1 and %d, or too many for a table of %d bytes", s.Partitions, maxPartitions, len(table))
	}
	r := tableReader{numberReader{rest: table}, v}
	v.Partitions = make([]Partition, s.Partitions)
	for p := range v.Partitions {
		v.Partitions[p] = r.partition()
		if r.err != nil {
			return nil, fmt.Errorf("table: partition %d: %w", p, r.err)
		}
	}
	if len(r.rest) > 0 {
		return nil, fmt.Errorf("table: %d bytes follow its %d partitions", len(r.rest), s.Partitions)
	}
	return v, nil
}

// appendTable appends the partitions. v is checked.
func (v *View) appendTable(b []byte) []byte {
	at := make(map[Life]uint64, len(v.Members))
	for i, m := range v.Members {
		at[m.Life] = uint64(i)
	}
	for p := range v.Partitions {
		part := &v.Partitions[p]
		age, standby := 2*(v.Number-part.Term), uint64(0)
		if part.Standby != (Life{}) {
			standby = 1 + at[part.Standby]
		}
		if len(part.Predecessors) > 0 {
			age++
		}
		b = binary.AppendUvarint(b, at[part.Owner])
		b = binary.AppendUvarint(b, age)
		b = binary.AppendUvarint(b, standby)
		if len(part.Predecessors) == 0 {
			continue
		}
		b = binary.AppendUvarint(b, uint64(len(part.Predecessors)))
		for _, l := range part.Predecessors {
			b = binary.AppendUvarint(b, at[l])
		}
	}
	return b
}

// tableReader reads the partitions of a view. It stops at the first error.
type tableReader struct {
	numberReader
	view *View
}

// life reads the index of a member.
func (r *tableReader) life(what string) Life {
	i := r.number(what, uint64(len(r.view.Members)-1))
	if r.err != nil {
		return Life{}
	}
	return r.view.Members[i].Life
}

func (r *tableReader) partition() (part Partition) {
	if len(r.view.Members) == 0 {
		r.fail("there are no members")
		return part
	}
	part.Owner = r.life("owner")
	age := r.number("age of the term", 2*r.view.Number-1)
	part.Term = r.view.Number - age/2
	if standby := r.number("standby", uint64(len(r.view.Members))); standby > 0 && r.err == nil {
		part.Standby = r.view.Members[standby-1].Life
	}
	if age%2 == 0 {
		return part
	}
	n := r.number("predecessors", maxPredecessors)
	if n == 0 {
		r.fail("predecessors: 0 has a flag")
	}
	for range n {
		if l := r.life("predecessor"); r.err == nil {
			part.Predecessors = append(part.Predecessors, l)
		}
	}
	return part
}

// numberReader reads varints. It stops at the first error.
type numberReader struct {
	rest []byte
	err  error
}

func (in *numberReader) fail(format string, args ...any) {
	if in.err == nil {
		in.err = fmt.Errorf(format, args...)
	}
}

// number reads a number that is at most most, in as few bytes as it takes.
func (in *numberReader) number(what string, most uint64) uint64 {
	if in.err != nil {
		return 0
	}
	n, size := binary.Uvarint(in.rest)
	switch {
	case size <= 0:
		in.err = fmt.Errorf("%s: %w", what, errWithinNumber)
		return 0
	case size > 1 && in.rest[size-1] == 0:
		in.fail("%s: %d stands in %d bytes, which are too many", what, n, size)
	case n > most:
		in.fail("%s: %d is above %d", what, n, most)
	}
	if in.err != nil {
		return 0
	}
	in.rest = in.rest[size:]
	return n
}

var errWithinNumber = errors.New("it ends within a number")

// text reads a length, at most most, and as many bytes.
func (in *numberReader) text(what string, most int) string {
	n := in.number(what, uint64(most))
	if in.err == nil && n > uint64(len(in.rest)) {
		in.fail("%s: it ends %d bytes before the end of the text", what, n-uint64(len(in.rest)))
	}
	if in.err != nil {
		return ""
	}
	text := string(in.rest[:n])
	in.rest = in.rest[n:]
	return text
}
