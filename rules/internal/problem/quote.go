package problem

import (
	"strconv"
	"unicode/utf8"
)

// Quote returns s as messages show it: escaped, and cut if it is long.
func Quote(s string) string {
	cut := Cut(s)
	if len(cut) < len(s) {
		return strconv.Quote(cut) + "..."
	}
	return strconv.Quote(s)
}

// Cut returns the beginning of s that messages show, without half a character.
func Cut(s string) string {
	const most = 64 // bytes
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > most-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}
