package xds

import (
	"fmt"
	"slices"
	"strings"

	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/rules/envoy"
)

// documents takes resources for documents of rules. The error is a *rules.LoadError with all resources that are none.
func documents(resources []*anypb.Any) ([]rules.Received, error) {
	docs := make([]rules.Received, 0, len(resources))
	var bad rules.LoadError
	for i, resource := range resources {
		var config rlsconf.RateLimitConfig
		if err := resource.UnmarshalTo(&config); err != nil {
			bad.Problems = append(bad.Problems, rules.Problem{File: fmt.Sprintf("resource %d", i+1), Message: fmt.Sprintf("is no RateLimitConfig: %v", err)})
			continue
		}
		descriptors, deep := specs(config.GetDescriptors(), 1)
		if deep {
			bad.Problems = append(bad.Problems, rules.Problem{File: nameOf(&config), Message: fmt.Sprintf("the descriptors stand one in the other more than %d deep", maxNested)})
			continue
		}
		docs = append(docs, rules.Received{Name: nameOf(&config), Document: rules.Document{Domain: config.GetDomain(), Descriptors: descriptors}})
	}
	if len(bad.Problems) > 0 {
		return nil, &bad
	}
	// Servers send them in any order, and with merge-domains the order means something.
	slices.SortStableFunc(docs, func(a, b rules.Received) int { return strings.Compare(a.Name, b.Name) })
	return docs, nil
}

// nameOf returns what messages call a resource.
func nameOf(config *rlsconf.RateLimitConfig) string {
	if name := config.GetName(); name != "" {
		return name
	}
	return fmt.Sprintf("resource of domain %q", config.GetDomain())
}

// specs returns descriptors as a file writes them, never nil, and whether they stand too deep one in the other.
func specs(descriptors []*rlsconf.RateLimitDescriptor, depth int) (_ []envoy.Spec, deep bool) {
	if depth > maxNested {
		return nil, true
	}
	list := make([]envoy.Spec, len(descriptors))
	for i, d := range descriptors {
		list[i] = envoy.Spec{
			Key: d.GetKey(), Value: d.GetValue(), RateLimit: rateLimit(d.GetRateLimit()),
			ShadowMode: d.GetShadowMode(), QuotaMode: d.GetQuotaMode(), DetailedMetric: d.GetDetailedMetric(),
			Metadata: d.GetMetadata().AsMap(),
		}
		if len(d.GetDescriptors()) == 0 {
			continue
		}
		if list[i].Descriptors, deep = specs(d.GetDescriptors(), depth+1); deep {
			return nil, true
		}
	}
	return list, false
}

func rateLimit(policy *rlsconf.RateLimitPolicy) *envoy.RateLimitSpec {
	if policy == nil {
		return nil
	}
	spec := &envoy.RateLimitSpec{
		Unit: policy.GetUnit().String(), RequestsPerUnit: policy.GetRequestsPerUnit(), Unlimited: policy.GetUnlimited(), Name: policy.GetName(),
	}
	for _, replaced := range policy.GetReplaces() {
		spec.Replaces = append(spec.Replaces, replaced.GetName())
	}
	return spec
}
