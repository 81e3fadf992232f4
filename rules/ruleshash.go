package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

var emptyHash = hashOf(nil, Options{}, nil)

// hashOf hashes what rules say in its canonical form, so that a field counts
// from the day on which it is there, and only where it is used.
func hashOf(rules []*Rule, how Options, described []Document) string {
	hash := sha256.New()
	e := json.NewEncoder(hash) // ends each value with a line feed, which no value holds
	encode := func(v any) {
		if err := e.Encode(v); err != nil {
			panic(fmt.Sprintf("rules: encode plain data: %v", err)) // cannot be: no types but these
		}
	}
	for _, r := range rules {
		if r.Descriptor == nil {
			encode(NamedSpec{r.Domain, r.Spec()})
		}
	}
	for _, doc := range described {
		encode(doc)
		encode(how.Envoy.Counts().String())
	}
	return hex.EncodeToString(hash.Sum(nil)[:8])
}
