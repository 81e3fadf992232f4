package view

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/weirlimit/weir/ring"
)

// Bounds of a view. A view of more is neither written nor read.
const (
	maxNumber     = 1<<53 - 1 // of a view: exact in every reader of JSON
	MaxRestored   = 1 << 52   // the term of a copy from a snapshot: views are numbered on from there
	maxMembers    = 1 << 16   // with those that are Gone
	maxPartitions = 1 << 16   // as many as a ring may have
	maxAddress    = 300       // bytes
)

// check returns an error that names the first field that is not as View, Partition and Electorate say.
func (v *View) check() error {
	if v.Number < 1 || v.Number > maxNumber {
		return fmt.Errorf("number: %d is not between 1 and %d", v.Number, uint64(maxNumber))
	}
	if len(v.Partitions) < 1 || len(v.Partitions) > maxPartitions {
		return fmt.Errorf("partitions: %d is not between 1 and %d", len(v.Partitions), maxPartitions)
	}
	if err := v.checkMembers(); err != nil {
		return err
	}
	for p := range v.Partitions {
		if err := v.checkPartition(&v.Partitions[p]); err != nil {
			return fmt.Errorf("partition %d: %w", p, err)
		}
	}
	return v.checkElectorate()
}

func (v *View) checkMembers() error {
	if len(v.Members) > maxMembers {
		return fmt.Errorf("members: %d are more than %d", len(v.Members), maxMembers)
	}
	living := "" // the last id of a member that is not Gone
	for i, m := range v.Members {
		err := m.check()
		switch {
		case err != nil:
		case i > 0 && compareLives(v.Members[i-1].Life, m.Life) >= 0:
			err = fmt.Errorf("it does not come after %s: members are sorted by id and incarnation, each once", v.Members[i-1].name())
		case m.State != Gone && living == m.ID:
			err = errors.New("another life of the same id is a member that is not gone")
		}
		if err != nil {
			return fmt.Errorf("members[%d] (%s): %w", i, m.name(), err)
		}
		if m.State != Gone {
			living = m.ID
		}
	}
	if len(v.staying()) == 0 {
		return fmt.Errorf("members: none of %d is ready", len(v.Members))
	}
	return nil
}

func (m *Member) check() error {
	if err := m.Life.check(); err != nil {
		return err
	}
	switch {
	case m.Address == "" || len(m.Address) > maxAddress || !utf8.ValidString(m.Address):
		return fmt.Errorf("address: %.40q is not text of 1 to %d bytes", m.Address, maxAddress)
	case m.State != Ready && m.State != Leaving && m.State != Gone:
		return fmt.Errorf("state: %q is not ready, leaving or gone", m.State)
	}
	return nil
}

func (l Life) check() error {
	switch {
	case l.ID == "" || len(l.ID) > ring.MaxMemberName || !utf8.ValidString(l.ID):
		return fmt.Errorf("id: %.40q is not text of 1 to %d bytes", l.ID, ring.MaxMemberName)
	case l.Incarnation == 0:
		return errors.New("incarnation: 0 is none")
	}
	return nil
}

func (v *View) checkPartition(part *Partition) error {
	if _, found := v.index(part.Owner); !found {
		return fmt.Errorf("owner: %s is not among the members", part.Owner.name())
	}
	if _, found := v.index(part.Standby); !found && part.Standby != (Life{}) {
		return fmt.Errorf("standby: %s is not among the members", part.Standby.name())
	}
	switch {
	case part.Term < 1 || part.Term > v.Number:
		return fmt.Errorf("term: %d is not between 1 and %d", part.Term, v.Number)
	case part.Standby == part.Owner:
		return fmt.Errorf("standby: %s is the owner", part.Standby.name())
	case len(part.Predecessors) > maxPredecessors:
		return fmt.Errorf("predecessors: %d are more than %d", len(part.Predecessors), maxPredecessors)
	}
	for i, l := range part.Predecessors {
		_, found := v.index(l)
		switch {
		case !found:
			return fmt.Errorf("predecessors: %s is not among the members", l.name())
		case l == part.Owner:
			return fmt.Errorf("predecessors: %s is the owner", l.name())
		case slices.Contains(part.Predecessors[:i], l):
			return fmt.Errorf("predecessors: %s stands there twice", l.name())
		}
	}
	return nil
}

func (v *View) checkElectorate() error {
	e := &v.Electorate
	switch {
	case e.Changed < 1 || e.Changed > v.Number:
		return fmt.Errorf("changed: %d is not between 1 and %d", e.Changed, v.Number)
	case e.Waived > v.Number:
		return fmt.Errorf("waived: %d is above %d", e.Waived, v.Number)
	case len(e.Before) == 0 && e.Changed > 1:
		return fmt.Errorf("before: it is empty, and changed is %d", e.Changed)
	}
	for i := 1; i < len(e.Before); i++ {
		if e.Before[i-1].ID >= e.Before[i].ID {
			return fmt.Errorf("before: %s does not come after %s: they are sorted by id, each once", e.Before[i].name(), e.Before[i-1].name())
		}
	}
	before, err := distinct("before", e.Before, maxMembers)
	if err != nil {
		return err
	}
	if _, err := distinct("given_up", e.GivenUp, maxGivenUp); err != nil {
		return err
	}
	if _, err := distinct("ended", e.Ended, 2*maxMembers); err != nil {
		return err
	}
	for _, l := range e.Ended {
		if !before[l] && !v.IsMember(l) {
			return fmt.Errorf("ended: %s is neither a member nor in before", l.name())
		}
	}
	return nil
}

// distinct returns a list of lives as a set, or an error that begins with the name of the list.
func distinct(name string, lives []Life, most int) (map[Life]bool, error) {
	if len(lives) > most {
		return nil, fmt.Errorf("%s: %d are more than %d", name, len(lives), most)
	}
	set := make(map[Life]bool, len(lives))
	for i, l := range lives {
		if err := l.check(); err != nil {
			return nil, fmt.Errorf("%s[%d] (%s): %w", name, i, l.name(), err)
		}
		if set[l] {
			return nil, fmt.Errorf("%s: %s stands there twice", name, l.name())
		}
		set[l] = true
	}
	return set, nil
}
