// Package asciijson writes JSON in printable ASCII, so that no text in it can end a line or direct a terminal.
package asciijson

import (
	"unicode/utf16"
	"unicode/utf8"
)

const hex = "0123456789abcdef"

// ASCII appends JSON to b, with every character outside of printable ASCII as an escape.
func ASCII(b, text []byte) []byte {
	for i := 0; i < len(text); {
		if text[i] < 0x7f { // JSON has escaped those that are not printable
			b = append(b, text[i])
			i++
			continue
		}
		r, n := utf8.DecodeRune(text[i:])
		b = appendEscaped(b, r)
		i += n
	}
	return b
}

// AppendString appends s as a string of JSON. What is not UTF-8 becomes U+FFFD.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
			i++
		case c == '\n':
			b = append(b, '\\', 'n')
			i++
		case c >= ' ' && c < 0x7f:
			b = append(b, c)
			i++
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			b = appendEscaped(b, r)
			i += n
		}
	}
	return append(b, '"')
}

func appendEscaped(b []byte, r rune) []byte {
	if r > 0xffff {
		high, low := utf16.EncodeRune(r)
		return appendUnit(appendUnit(b, high), low)
	}
	return appendUnit(b, r)
}

func appendUnit(b []byte, u rune) []byte {
	return append(b, '\\', 'u', hex[u>>12&15], hex[u>>8&15], hex[u>>4&15], hex[u&15])
}
