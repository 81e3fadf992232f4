package main

import (
	"fmt"
	"unsafe"

	"github.com/weirlimit/weir/algorithms"
)

// Bytes of a counter: of a State, and of a Long without its entries, as package shard counts it.
const (
	stateBytes = unsafe.Sizeof(algorithms.State{})
	longBytes  = 192
	entryBytes = 16
)

// compareAlgorithms writes what each algorithm promises and costs.
func compareAlgorithms() (b []byte, err error) {
	b = append(b, "| algorithm | at most, in any stretch of a window's length | a burst | bytes per counter | good for |\n|---|---|---|---|---|\n"...)
	for i, a := range algorithms.All() {
		g, name := a.Guide(), fmt.Sprintf("`%v`", a)
		if i == 0 {
			name += " (default)"
		}
		size := fmt.Sprint(stateBytes)
		if a.Long() {
			size = fmt.Sprintf("%d + %d per entry: %s", longBytes, entryBytes, g.Entries)
		}
		b = fmt.Appendf(b, "| %s | %s | %s | %s | %s |\n", name, g.Promise, g.Burst, size, g.GoodFor)
	}
	return b, nil
}

// chooseAlgorithms writes when to choose each.
func chooseAlgorithms() (b []byte, err error) {
	b = append(b, "| algorithm | take it if |\n|---|---|\n"...)
	for _, a := range algorithms.All() {
		b = fmt.Appendf(b, "| `%v` | %s |\n", a, a.Guide().Choose)
	}
	return b, nil
}
