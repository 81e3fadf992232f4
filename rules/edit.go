package rules

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weirlimit/weir/rules/envoy"
	"github.com/weirlimit/weir/rules/internal/problem"
	"github.com/weirlimit/weir/rules/internal/yamlnode"
)

// editName is what messages call the rules as they would be after an edit.
const editName = "rules"

// Edit says which rules are to take the place of those of a state. Its error
// becomes that of Change. It may be asked again about a newer state.
type Edit func(old *State) ([]Document, error)

// Why an Edit or a Change is refused, in addition to a *LoadError.
var (
	ErrNotFound = errors.New("there is no such rule")
	ErrExists   = errors.New("there is such a rule already")
	ErrChanged  = errors.New("another caller has changed the rules meanwhile")
	ErrReadOnly = errors.New("rules cannot be changed through this node")
	ErrWhole    = errors.New("the descriptors of a domain change together: apply their file")
	ErrTooLarge = errors.New("the rules are too large for the store")
)

// At returns the edit if the state is of that revision, and otherwise ErrChanged.
func (edit Edit) At(revision int64) Edit {
	return func(old *State) ([]Document, error) {
		if old.Revision != revision {
			return nil, fmt.Errorf("%w: they are at revision %d, not %d", ErrChanged, old.Revision, revision)
		}
		return edit(old)
	}
}

// Create adds a rule, after those of its domain. It returns ErrExists if there is
// one of that name.
func Create(domain string, spec Spec) Edit {
	return func(old *State) ([]Document, error) {
		if err := checkName(domain, spec.ID); err != nil {
			return nil, err
		}
		if err := old.single(domain); err != nil {
			return nil, err
		}
		g := group(old.Set.Documents())
		if _, exists := g.index[ruleName{domain, spec.ID}]; exists {
			return nil, fmt.Errorf("%w: %s", ErrExists, describe(domain, spec.ID))
		}
		g.add(domain, spec)
		return g.documents(), nil
	}
}

// Update replaces a rule, in its place. It returns ErrNotFound if there is none,
// and ErrChanged if it is not of that revision, unless that is 0.
func Update(domain string, spec Spec, revision int64) Edit {
	return func(old *State) ([]Document, error) {
		g := group(old.Set.Documents())
		i, err := g.locate(old, domain, spec.ID, revision)
		if err != nil {
			return nil, err
		}
		g.rules[domain][i] = spec
		return g.documents(), nil
	}
}

// Delete removes a rule, with the same errors as Update.
func Delete(domain, id string, revision int64) Edit {
	return func(old *State) ([]Document, error) {
		g := group(old.Set.Documents())
		i, err := g.locate(old, domain, id, revision)
		if err != nil {
			return nil, err
		}
		g.rules[domain] = slices.Delete(g.rules[domain], i, i+1)
		return g.documents(), nil
	}
}

// Apply adds the rules of docs and replaces those that are there already, in their
// places. With prune it also removes all others from the domains that docs have, a
// document without rules included; their rules then stand in the order of docs.
func Apply(docs []Document, prune bool) Edit {
	return func(old *State) ([]Document, error) {
		emptied := make(map[string]bool)
		for _, doc := range docs {
			emptied[doc.Domain] = prune
		}
		before := old.Set.Documents()
		for i := range before {
			if emptied[before[i].Domain] {
				before[i].Rules, before[i].Descriptors = nil, nil // but the domain keeps its place
			}
		}
		g := group(before)
		for _, doc := range docs {
			g.describe(doc)
			for _, spec := range doc.Rules {
				if i, exists := g.index[ruleName{doc.Domain, spec.ID}]; exists {
					g.rules[doc.Domain][i] = spec
				} else {
					g.add(doc.Domain, spec)
				}
			}
		}
		return g.documents(), nil
	}
}

// grouped are documents with one per domain.
type grouped struct {
	domains     []string // in order
	rules       map[string][]Spec
	index       map[ruleName]int // in the rules of the domain
	descriptors map[string][]envoy.Spec
}

func group(docs []Document) *grouped {
	g := &grouped{rules: make(map[string][]Spec), index: make(map[ruleName]int), descriptors: make(map[string][]envoy.Spec)}
	for _, doc := range docs {
		g.open(doc.Domain)
		g.describe(doc)
		for _, spec := range doc.Rules {
			g.add(doc.Domain, spec)
		}
	}
	return g
}

// open gives a domain its place.
func (g *grouped) open(domain string) {
	if _, known := g.rules[domain]; !known {
		g.domains = append(g.domains, domain)
		g.rules[domain] = nil
	}
}

// describe takes in the descriptors of doc, if it has some.
func (g *grouped) describe(doc Document) {
	if doc.Descriptors != nil {
		g.open(doc.Domain)
		g.descriptors[doc.Domain] = doc.Descriptors
	}
}

func (g *grouped) add(domain string, spec Spec) {
	g.open(domain)
	g.index[ruleName{domain, spec.ID}] = len(g.rules[domain])
	g.rules[domain] = append(g.rules[domain], spec)
}

// locate returns the index in its domain of a rule that must be there, at the
// revision unless that is 0.
func (g *grouped) locate(old *State, domain, id string, revision int64) (int, error) {
	if err := old.single(domain); err != nil {
		return 0, err
	}
	i, exists := g.index[ruleName{domain, id}]
	if !exists {
		return 0, fmt.Errorf("%w: %s", ErrNotFound, describe(domain, id))
	}
	if now := old.RuleRevision(domain, id); revision != 0 && now != revision {
		return 0, fmt.Errorf("%w: %s is at revision %d, not %d", ErrChanged, describe(domain, id), now, revision)
	}
	return i, nil
}

func (g *grouped) documents() []Document {
	docs := make([]Document, len(g.domains))
	for i, domain := range g.domains {
		docs[i] = Document{Domain: domain, Rules: g.rules[domain], Descriptors: g.descriptors[domain]}
	}
	return docs
}

// single returns ErrWhole if a domain has no rules that change one by one.
func (s *State) single(domain string) error {
	if s.Set.Descriptors(domain) != nil {
		return fmt.Errorf("%w, with weir rules apply: domain %s", ErrWhole, problem.Quote(domain))
	}
	return nil
}

// checkName refuses names that no rule can have. Compile does so too, but cannot
// say which of all documents is meant.
func checkName(domain, id string) error {
	d := &decoder{loader: newLoader(Options{}), file: editName}
	d.pathName(yamlnode.Text(domain), problem.Path{}.Key("domain"), domainBytes, maxDomain)
	d.pathName(yamlnode.Text(id), problem.Path{}.Key("id"), idBytes, maxID)
	return d.problems.Err()
}

func describe(domain, id string) string {
	return fmt.Sprintf("%s in domain %s", problem.Quote(id), problem.Quote(domain))
}
