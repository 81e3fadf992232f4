package rules

import "testing"

func (e extent) len() int { return int(e.end - e.begin) }

// The index must not file all rules under the value that they share.
func TestIndexDistinguishesRules(t *testing.T) {
	for _, when := range []string{
		`method: POST, endpoint: /posts/%d`,
		`method: POST, endpoint: "/posts/%d/*"`,
		`aaa: "*", endpoint: ["/posts/%[1]d", "/articles/%[1]d/*"], method: [GET, POST]`,
		`method: {absent: true}, endpoint: /posts/%d, user: "re:[a-z]+"`,
	} {
		ix := manyRules(100, when).domains["shop"]
		a := ix.attributes["endpoint"]
		if a == nil || len(ix.attributes) != 1 || ix.always.len() > 0 || a.present.len() > 0 {
			t.Errorf("%s: not filed under endpoint alone", when)
			continue
		}
		for _, s := range a.exact.slots {
			if n := s.filed.len(); n > 1 {
				t.Errorf("%s: %d rules under %q", when, n, ix.filed[s.filed.begin].value())
			}
		}
	}
}

// A rule without conditions is asked only if its attributes are there.
func TestIndexFilesByPer(t *testing.T) {
	ix := parse(t, oneRule("{id: r, when: {x: {absent: true}}, per: [user], limits: [{limit: 1, window: 1s}]}")).domains["d"]
	if a := ix.attributes["user"]; ix.always.len() > 0 || a == nil || a.present.len() != 1 {
		t.Errorf("not filed under user: %v", ix)
	}
}
