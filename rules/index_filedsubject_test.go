package rules

import (
	"strings"
	"testing"
	"unsafe"
)

// The texts of a filed subject are the same whether they fit into it or not.
func TestFiledSubjectTexts(t *testing.T) {
	if size := unsafe.Sizeof(filedSubject{}); size != 128 {
		t.Errorf("a filedSubject takes %d bytes, want two cache lines", size)
	}
	room := len(filedSubject{}.short)
	for _, lengths := range [][3]int{{0, 5, 0}, {1, 5, 2}, {0, room, 0}, {room - 9, 5, 4}, {room - 9, 5, 5}, {maxValue, 2 * maxValue, maxValue}} {
		value, name, only := strings.Repeat("v", lengths[0]), strings.Repeat("n", lengths[1]), strings.Repeat("o", lengths[2])
		c := newFiledSubject(&subjectToFile{namedSubject: &namedSubject{name: name}, only: only}, value)
		if c.value() != value || c.name() != name || c.only() != only {
			t.Errorf("%d: %q, %q, %q", lengths, c.value(), c.name(), c.only())
		}
		if short := lengths[0]+lengths[1]+lengths[2] <= room; (c.long == "") != short {
			t.Errorf("%d: fits: %t, and yet %q", lengths, short, c.long)
		}
	}
}
