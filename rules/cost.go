package rules

import (
	"fmt"
	"strconv"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/rules/internal/problem"
)

// Cost returns what r counts for tokens that req asks for, between -MaxCost and
// MaxCost: tokens times the rule's cost, which may be the value of an attribute,
// and is 1 if that attribute is absent. The error names the attribute and its
// value.
func (r *Rule) Cost(req *Request, tokens int64) (int64, error) {
	if tokens < -algorithms.MaxCost || tokens > algorithms.MaxCost {
		return 0, fmt.Errorf("%d tokens are not between %d and %d", tokens, -algorithms.MaxCost, algorithms.MaxCost)
	}
	cost := r.cost
	if r.costAttribute != "" {
		value, present := req.value(r.costAttribute)
		if !present {
			return tokens, nil
		}
		var ok bool
		if cost, ok = parseCost(value); !ok {
			return 0, fmt.Errorf("attribute %s is the cost of rule %s: %s is not a whole number between 0 and %d",
				problem.Quote(r.costAttribute), problem.Quote(r.ID), problem.Quote(value), algorithms.MaxCost)
		}
	}
	product := tokens * cost // 2^62 at most
	if product >= -algorithms.MaxCost && product <= algorithms.MaxCost {
		return product, nil
	}
	if r.costAttribute != "" {
		return 0, fmt.Errorf("attribute %s is the cost of rule %s: %d times %d tokens are more than %d",
			problem.Quote(r.costAttribute), problem.Quote(r.ID), cost, tokens, algorithms.MaxCost)
	}
	return 0, fmt.Errorf("the cost of rule %s: %d times %d tokens are more than %d", problem.Quote(r.ID), cost, tokens, algorithms.MaxCost)
}

// parseCost reads decimal digits, at most MaxCost.
func parseCost(value string) (int64, bool) {
	cost, err := strconv.ParseUint(value, 10, 64)
	return int64(cost), err == nil && cost <= algorithms.MaxCost
}
