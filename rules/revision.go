package rules

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

var emptyRevision = revision(nil)

// revision hashes what rules say. All parts stand behind their lengths or
// numbers, so that different rules never look alike.
func revision(rules []*Rule) string {
	hash := sha256.New()
	var b []byte
	for _, r := range rules {
		b = appendRule(b[:0], r)
		hash.Write(b)
	}
	return hex.EncodeToString(hash.Sum(nil)[:8])
}

func appendRule(b []byte, r *Rule) []byte {
	b = appendText(appendText(b, r.Domain), r.ID)
	b = appendFlag(b, r.Enabled)
	b = binary.AppendUvarint(b, uint64(len(r.When)))
	for _, c := range r.When {
		b = appendText(b, c.Attribute)
		b = appendTexts(b, c.AnyOf) // none means absent
	}
	b = appendTexts(b, r.Per)
	b = binary.AppendUvarint(b, uint64(len(r.Limits)))
	for _, l := range r.Limits {
		b = append(b, byte(l.Algorithm))
		b = binary.AppendUvarint(b, uint64(l.Limit))
		b = binary.AppendUvarint(b, uint64(l.Window))
		b = binary.AppendUvarint(b, uint64(l.Burst))
	}
	return b
}

func appendTexts(b []byte, texts []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(texts)))
	for _, t := range texts {
		b = appendText(b, t)
	}
	return b
}

func appendFlag(b []byte, set bool) []byte {
	if set {
		return append(b, 1)
	}
	return append(b, 0)
}
