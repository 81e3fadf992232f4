package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

var emptyRevision = revision(nil)

// revision hashes what rules say in its canonical form, so that a field counts
// from the day on which it is there, and only where it is used.
func revision(rules []*Rule) string {
	hash := sha256.New()
	e := json.NewEncoder(hash) // ends each value with a line feed, which no value holds
	for _, r := range rules {
		if err := e.Encode(NamedSpec{r.Domain, r.Spec()}); err != nil {
			panic(fmt.Sprintf("rules: encode plain data: %v", err)) // cannot be: no types but these
		}
	}
	return hex.EncodeToString(hash.Sum(nil)[:8])
}
