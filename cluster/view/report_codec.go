package view

import (
	"encoding/binary"
	"fmt"

	"github.com/weirlimit/weir/ring"
)

// maxReports bounds the reports of a heartbeat: a view names members, those before them and those that were given up.
const maxReports = 2*maxMembers + maxGivenUp

// Append appends the reports as they travel in a heartbeat: how many there are, the highest Adopted, then each. Of an id comes how many bytes
// it has in common with the one before, how many more it has, and these. Then come incarnation, how far Adopted is below the
// highest, revision, and both sets. All numbers are varints.
func (r Reports) Append(b []byte) []byte {
	highest := uint64(0)
	for i := range r {
		highest = max(highest, r[i].Adopted)
	}
	b = binary.AppendUvarint(b, uint64(len(r)))
	b = binary.AppendUvarint(b, highest)
	before := ""
	for i := range r {
		id, same := r[i].ID, 0
		for same < min(len(id), len(before)) && id[same] == before[same] {
			same++
		}
		b = binary.AppendUvarint(b, uint64(same))
		b = binary.AppendUvarint(b, uint64(len(id)-same))
		b = append(b, id[same:]...)
		b = binary.AppendUvarint(b, r[i].Incarnation)
		b = binary.AppendUvarint(b, highest-r[i].Adopted)
		b = binary.AppendUvarint(b, r[i].Revision)
		b = r[i].Settled.append(b)
		b = r[i].Complete.append(b)
		before = id
	}
	return b
}

// append appends the set: twice the number of entries that are not 0, plus 1 if the first is 0; then the differences of these entries,
// minus 1. So all partitions, and none, are one byte.
func (s Set) append(b []byte) []byte {
	has0, before := uint64(0), uint32(0)
	if len(s) > 0 && s[0] == 0 {
		has0, s = 1, s[1:]
	}
	b = binary.AppendUvarint(b, 2*uint64(len(s))+has0)
	for _, p := range s {
		b = binary.AppendUvarint(b, uint64(p-before-1))
		before = p
	}
	return b
}

// ParseReports reads what Append has written of reports in a cluster of that many partitions, and refuses all else.
func ParseReports(b []byte, partitions int) (Reports, error) {
	in := numberReader{rest: b}
	n := in.number("reports", maxReports)
	highest := in.number("highest view", maxNumber)
	var r Reports
	for i := uint64(0); i < n && in.err == nil; i++ {
		var before Life
		if i > 0 {
			before = r[i-1].Life
		}
		report := in.report(before, highest, partitions)
		if in.err != nil {
			return nil, fmt.Errorf("reports[%d] (%s): %w", i, report.name(), in.err)
		}
		r = append(r, report)
	}
	switch {
	case in.err != nil:
		return nil, in.err
	case len(in.rest) > 0:
		return nil, fmt.Errorf("%d bytes follow the %d reports", len(in.rest), n)
	}
	return r, nil
}

// report reads a report of a life that comes after before.
func (in *numberReader) report(before Life, highest uint64, partitions int) (r Report) {
	same := in.number("common bytes of the id", uint64(len(before.ID)))
	rest := in.text("id", ring.MaxMemberName)
	if in.err != nil {
		return r
	}
	r.Life = Life{before.ID[:same] + rest, in.number("incarnation", 1<<64-1)}
	if r.Adopted = highest - in.number("views below the highest", highest); r.Adopted == 0 {
		in.fail("adopted: 0 is none")
	}
	r.Revision = in.number("revision", 1<<64-1)
	r.Settled = in.set("settled", partitions)
	r.Complete = in.set("complete", partitions)
	if err := r.Life.check(); err != nil && in.err == nil {
		in.err = err
	}
	if compareLives(before, r.Life) >= 0 {
		in.fail("it does not come after %s: reports are sorted by id and incarnation, each once", before.name())
	}
	return r
}

// set reads a set of partitions.
func (in *numberReader) set(name string, partitions int) (s Set) {
	n := in.number(name, 2*uint64(partitions))
	if n%2 == 1 {
		s = append(s, 0)
	}
	next := uint64(1)
	for range n / 2 {
		next += in.number(name, uint64(partitions))
		if in.err == nil && next >= uint64(partitions) {
			in.fail("%s: %d is no partition of %d", name, next, partitions)
		}
		if in.err != nil {
			return nil
		}
		s = append(s, uint32(next))
		next++
	}
	return s
}
