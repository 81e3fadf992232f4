package main

import (
	"context"
	"errors"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir/api"
	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
)

// checkDescriptors is "weir check" with descriptors.
func (a *app) checkDescriptors(cmd *cobra.Command, q *nodeFlags, d *descriptors, args []string, domain string, cost int64, peek bool) error {
	request, err := d.request(cmd, args, domain)
	if err != nil {
		return err
	}
	if err := checkCost(cmd, cost); err != nil {
		return err
	}
	var allowed bool
	switch {
	case peek && cost < 0:
		return usageError(cmd, "--cost: %d is not between 1 and %d; with --peek no tokens can be given back", cost, maxCost)
	case peek:
		request.Hits = cost
		allowed, err = a.askDescriptors(cmd, q, d, request, formatDescriptors)
	default:
		allowed, err = a.askAsEnvoy(cmd, q, d, request, cost)
	}
	if err == nil && !allowed {
		return &exitError{code: 1}
	}
	return err
}

// explainDescriptors is "weir explain" with descriptors.
func (a *app) explainDescriptors(cmd *cobra.Command, q *nodeFlags, d *descriptors, args []string, domain string, cost int64) error {
	request, err := d.request(cmd, args, domain)
	if err != nil {
		return err
	}
	if cost < 1 || cost > maxCost {
		return usageError(cmd, "--cost: %d is not between 1 and %d", cost, maxCost)
	}
	request.Hits = cost
	_, err = a.askDescriptors(cmd, q, d, request, formatDescriptors)
	return err
}

// descriptorsStatus is "weir status" with descriptors.
func (a *app) descriptorsStatus(cmd *cobra.Command, q *nodeFlags, d *descriptors, args []string, domain string) error {
	request, err := d.request(cmd, args, domain)
	if err == nil {
		_, err = a.askDescriptors(cmd, q, d, request, formatDescriptorLimits)
	}
	return err
}

// resetDescriptors is "weir reset" with descriptors.
func (a *app) resetDescriptors(cmd *cobra.Command, q *nodeFlags, d *descriptors, args []string, domain, rule string) error {
	request, err := d.request(cmd, args, domain)
	if err != nil {
		return err
	}
	if rule != "" {
		return usageError(cmd, "--rule: %q cannot be given with --descriptor, which leads to its rule by itself; leave --rule out", rule)
	}
	return a.ask(cmd, q, func(ctx context.Context, c *client.Node) error {
		response, err := c.ResetDescriptors(ctx, request)
		if err != nil {
			return err
		}
		text := noDescriptorLimit
		if len(response.GetLimits()) > 0 {
			text = formatResetAnswer(response)
		}
		return a.print(q.json, response, text)
	})
}

// askDescriptors asks what descriptors lead to, prints that, and returns whether the request
// would be allowed.
func (a *app) askDescriptors(cmd *cobra.Command, q *nodeFlags, d *descriptors, request *weirv1.DescriptorsRequest,
	format func(texts []string, response *weirv1.ExplainDescriptorsResponse) string,
) (allowed bool, err error) {
	err = a.ask(cmd, q, func(ctx context.Context, c *client.Node) error {
		response, err := c.ExplainDescriptors(ctx, request)
		if err != nil {
			return err
		}
		allowed = response.GetAllowed()
		return a.print(q.json, response, format(d.texts, response))
	})
	return allowed, err
}

// askAsEnvoy checks as Envoy does, prints the answer, and returns whether the request is allowed.
func (a *app) askAsEnvoy(cmd *cobra.Command, q *nodeFlags, d *descriptors, request *weirv1.DescriptorsRequest, cost int64) (allowed bool, err error) {
	err = a.ask(cmd, q, func(ctx context.Context, _ *client.Node) (err error) {
		secured := insecure.NewCredentials()
		if q.secured != nil {
			secured = credentials.NewTLS(q.secured)
		}
		conn, err := grpc.NewClient(q.node, grpc.WithTransportCredentials(secured))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, conn.Close()) }()
		response, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, envoyRequest(request, cost))
		if err != nil {
			return err
		}
		allowed = response.GetOverallCode() != rlsv3.RateLimitResponse_OVER_LIMIT
		return a.print(q.json, response, formatEnvoy(d.texts, response))
	})
	return allowed, err
}

// envoyRequest is what Envoy would send.
func envoyRequest(request *weirv1.DescriptorsRequest, cost int64) *rlsv3.RateLimitRequest {
	sent := &rlsv3.RateLimitRequest{Domain: request.GetDomain()}
	if sent.GetDomain() == "" {
		sent.Domain = api.DefaultDomain
	}
	for _, d := range request.GetDescriptors() {
		one := &commonv3.RateLimitDescriptor{HitsAddend: wrapperspb.UInt64(uint64(max(cost, -cost))), IsNegativeHits: cost < 0}
		for _, e := range d.GetEntries() {
			one.Entries = append(one.Entries, &commonv3.RateLimitDescriptor_Entry{Key: e.GetKey(), Value: e.GetValue()})
		}
		sent.Descriptors = append(sent.Descriptors, one)
	}
	return sent
}
