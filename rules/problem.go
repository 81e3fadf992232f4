package rules

import "github.com/weirlimit/weir/rules/internal/problem"

// Problem is one reason why rules were refused. It is a value.
type Problem = problem.Problem

// LoadError says why rules were refused.
type LoadError = problem.LoadError
