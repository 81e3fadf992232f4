package rules

import "unsafe"

// filedSubject is a subject as it is filed in one place. It holds all that Match needs of a
// rule and no other has, texts included, in two cache lines that stand side by side: of
// many rules, each place to look at is a cache miss, and the next one waits for it.
type filedSubject struct {
	subject
	when *unseen // nil if there is none
	// The texts stand one behind the other: in short, or if they are too long for it, in
	// long. There are the exact value that it is filed under, the name of the namedSubject, and
	// the value that unseen.only asks for.
	long              string
	lenValue, lenName uint16
	lenOnly           uint16
	short             [74]byte
}

// unseen are the conditions of rules that their places in the index do not see to.
type unseen struct {
	only string       // attribute that must have the subject's one value; empty if there is none
	rest []*Condition // the others
}

// newFiledSubject returns s as it is filed under an exact value, or without one.
func newFiledSubject(s *subjectToFile, value string) filedSubject {
	c := filedSubject{
		subject: s.subject, when: s.when,
		lenValue: uint16(len(value)), lenName: uint16(len(s.name)), lenOnly: uint16(len(s.only)),
	}
	if texts := value + s.name + s.only; copy(c.short[:], texts) < len(texts) {
		c.long = texts
	}
	return c
}

// text returns a part of the texts of c, which never change.
func (c *filedSubject) text(begin, length uint16) string {
	all := c.long
	if all == "" {
		all = unsafe.String(&c.short[0], len(c.short))
	}
	return all[begin:][:length]
}

func (c *filedSubject) value() string { return c.text(0, c.lenValue) }
func (c *filedSubject) name() string  { return c.text(c.lenValue, c.lenName) }
func (c *filedSubject) only() string  { return c.text(c.lenValue+c.lenName, c.lenOnly) }

// holdsFor says whether req meets the conditions that the place of c does not see to.
func (c *filedSubject) holdsFor(req *Request) bool {
	if c.when.only != "" {
		if value, _ := req.value(c.when.only); value != c.only() { // which is not empty
			return false
		}
	}
	for _, other := range c.when.rest {
		if !other.holdsFor(req) {
			return false
		}
	}
	return true
}
