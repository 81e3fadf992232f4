package apitest

import (
	"context"
	"errors"

	"github.com/weirlimit/weir/rules"
)

// FixedRules is an api.RuleStore of rules that do not change.
type FixedRules struct{ Set *rules.Set }

// State implements api.RuleStore. Nothing has a revision.
func (r FixedRules) State() *rules.State { return &rules.State{Set: r.Set} }

// Change implements api.RuleStore. It always fails.
func (FixedRules) Change(context.Context, bool, rules.Edit) (old, next *rules.State, err error) {
	return nil, nil, errors.New("these rules do not change")
}
