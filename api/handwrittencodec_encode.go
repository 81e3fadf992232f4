package api

import (
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirlimit/weir/api/internal/wire"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// This file writes the messages that answer checks, package envoy those of Envoy. Numbers are
// those of the fields in the .proto files. As everywhere in them, what is zero is left
// out, unless it is optional.

func appendResponse(b []byte, r *weirv1.RateLimitResponse) []byte {
	b = wire.AppendBool(b, 1, r.Allowed)
	b = wire.AppendVarint(b, 2, uint64(r.Limit))
	b = wire.AppendVarint(b, 3, uint64(r.RemainingTokens))
	b = wire.AppendVarint(b, 4, uint64(r.ResetTime))
	b = wire.AppendVarint(b, 5, uint64(r.RetryAfterSeconds))
	b = wire.AppendDurationOf(b, 6, r.RetryAfter)
	b = wire.AppendString(b, 7, r.RuleId)
	b = wire.AppendVarint(b, 8, uint64(r.Source))
	b = wire.AppendDurationOf(b, 9, r.Window)
	b = wire.AppendDurationOf(b, 10, r.ResetAfter)
	for _, l := range r.Limits {
		b = appendLimitStatus(b, 11, l)
	}
	b = wire.AppendDurationOf(b, 12, r.Delay)
	b = wire.AppendOptionalBool(b, 13, r.OverLimit)
	b = wire.AppendOptionalBool(b, 14, r.WouldDeny)
	if r.Calendar != nil {
		b = protowire.AppendString(wire.AppendTag(b, 15, protowire.BytesType), *r.Calendar)
	}
	if r.DenialReason != nil {
		b = protowire.AppendVarint(wire.AppendTag(b, 16, protowire.VarintType), uint64(*r.DenialReason))
	}
	if r.Lease != nil {
		b = appendLease(b, 17, r.Lease)
	}
	return b
}

func appendLease(b []byte, number protowire.Number, l *weirv1.Lease) []byte {
	b, begin := wire.BeginMessage(b, number)
	b = wire.AppendVarint(b, 1, uint64(l.Tokens))
	b = wire.AppendDurationOf(b, 2, l.ValidFor)
	b = wire.AppendVarint(b, 3, uint64(l.DebitedAt))
	return wire.EndMessage(b, begin)
}

func appendLimitStatus(b []byte, number protowire.Number, s *weirv1.LimitStatus) []byte {
	b, begin := wire.BeginMessage(b, number)
	b = wire.AppendString(b, 1, s.RuleId)
	b = wire.AppendVarint(b, 2, uint64(s.Limit))
	b = wire.AppendDurationOf(b, 3, s.Window)
	b = wire.AppendString(b, 4, s.Calendar)
	b = wire.AppendString(b, 5, s.Algorithm)
	for _, attribute := range s.Per {
		b = protowire.AppendString(wire.AppendTag(b, 6, protowire.BytesType), attribute)
	}
	b = wire.AppendBool(b, 7, s.Allowed)
	b = wire.AppendVarint(b, 8, uint64(s.RemainingTokens))
	b = wire.AppendDurationOf(b, 9, s.ResetAfter)
	b = wire.AppendDurationOf(b, 10, s.RetryAfter)
	b = wire.AppendDurationOf(b, 11, s.Delay)
	b = wire.AppendBool(b, 12, s.OverLimit)
	b = wire.AppendBool(b, 13, s.Shadow)
	b = wire.AppendVarint(b, 14, uint64(s.Source))
	b = wire.AppendString(b, 15, s.Owner)
	b = wire.AppendString(b, 16, s.Standby)
	return wire.EndMessage(b, begin)
}

// appendError appends a CheckError.
func appendError(b []byte, number protowire.Number, err *status.Status) []byte {
	b, begin := wire.BeginMessage(b, number)
	b = wire.AppendVarint(b, 1, uint64(int32(err.Code())))
	b = wire.AppendString(b, 2, err.Message())
	return wire.EndMessage(b, begin)
}
