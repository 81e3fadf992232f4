package jsonbody

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// wrongEscape returns an error that says where in a text of JSON the first escape is that
// stands for no character, nil if there is none. The decoder tells only where its string
// begins, or that the text ends too early.
func wrongEscape(text []byte) error {
	inString := false
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '"':
			inString = !inString
		case text[i] == '\\' && inString:
			n := escapeLen(text[i:])
			if n == 0 {
				return fmt.Errorf("body: %s: %s stands for no character", position(text, i), escapeText(text[i:]))
			}
			i += n - 1
		}
	}
	return nil
}

// escapeLen returns how many bytes the escape has that text begins with, a pair of two halves
// included; 0 if it is none. One that the text ends in is as long as that.
func escapeLen(text []byte) int {
	if len(text) < 2 {
		return len(text)
	}
	if text[1] != 'u' {
		if bytes.IndexByte([]byte(`"\/bfnrt`), text[1]) < 0 {
			return 0
		}
		return 2
	}
	first, ok := escapedRune(text)
	switch {
	case !ok:
		return 0
	case !utf16.IsSurrogate(first):
		return 6
	}
	if second, ok := escapedRune(text[6:]); !ok || utf16.DecodeRune(first, second) == utf8.RuneError {
		return 0
	}
	return 12
}

// escapedRune reads \u and four hexadecimal digits.
func escapedRune(text []byte) (rune, bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(n), err == nil
}

// escapeText is how an escape is told: up to the end of its string.
func escapeText(text []byte) string {
	n := 2
	if text[1] == 'u' {
		n = min(len(text), 6)
	}
	if quote := bytes.IndexByte(text[1:n], '"'); quote > 0 {
		n = 1 + quote
	}
	return string(bytes.ToValidUTF8(text[:n], []byte("\uFFFD")))
}

// position says where the i-th byte of text is, as the decoder does.
func position(text []byte, i int) string {
	before := text[:i]
	line := bytes.Count(before, []byte("\n")) + 1
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	return fmt.Sprintf("line %d, column %d", line, column)
}
