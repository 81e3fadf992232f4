package api

import (
	"slices"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// This file writes the messages that answer checks, envoy.go those of Envoy. Numbers are
// those of the fields in the .proto files. As everywhere in them, what is zero is left
// out, unless it is optional.

func appendResponse(b []byte, r *weirv1.RateLimitResponse) []byte {
	b = appendBool(b, 1, r.Allowed)
	b = appendVarint(b, 2, uint64(r.Limit))
	b = appendVarint(b, 3, uint64(r.RemainingTokens))
	b = appendVarint(b, 4, uint64(r.ResetTime))
	b = appendVarint(b, 5, uint64(r.RetryAfterSeconds))
	b = appendDurationOf(b, 6, r.RetryAfter)
	b = appendString(b, 7, r.RuleId)
	b = appendVarint(b, 8, uint64(r.Source))
	b = appendDurationOf(b, 9, r.Window)
	b = appendDurationOf(b, 10, r.ResetAfter)
	for _, l := range r.Limits {
		b = appendLimitStatus(b, 11, l)
	}
	b = appendDurationOf(b, 12, r.Delay)
	b = appendOptionalBool(b, 13, r.OverLimit)
	b = appendOptionalBool(b, 14, r.WouldDeny)
	if r.Calendar != nil {
		b = protowire.AppendString(appendTag(b, 15, protowire.BytesType), *r.Calendar)
	}
	if r.DenialReason != nil {
		b = protowire.AppendVarint(appendTag(b, 16, protowire.VarintType), uint64(*r.DenialReason))
	}
	if r.Lease != nil {
		b = appendLease(b, 17, r.Lease)
	}
	return b
}

func appendLease(b []byte, number protowire.Number, l *weirv1.Lease) []byte {
	b, begin := beginMessage(b, number)
	b = appendVarint(b, 1, uint64(l.Tokens))
	b = appendDurationOf(b, 2, l.ValidFor)
	b = appendVarint(b, 3, uint64(l.DebitedAt))
	return endMessage(b, begin)
}

func appendLimitStatus(b []byte, number protowire.Number, s *weirv1.LimitStatus) []byte {
	b, begin := beginMessage(b, number)
	b = appendString(b, 1, s.RuleId)
	b = appendVarint(b, 2, uint64(s.Limit))
	b = appendDurationOf(b, 3, s.Window)
	b = appendString(b, 4, s.Calendar)
	b = appendString(b, 5, s.Algorithm)
	for _, attribute := range s.Per {
		b = protowire.AppendString(appendTag(b, 6, protowire.BytesType), attribute)
	}
	b = appendBool(b, 7, s.Allowed)
	b = appendVarint(b, 8, uint64(s.RemainingTokens))
	b = appendDurationOf(b, 9, s.ResetAfter)
	b = appendDurationOf(b, 10, s.RetryAfter)
	b = appendDurationOf(b, 11, s.Delay)
	b = appendBool(b, 12, s.OverLimit)
	b = appendBool(b, 13, s.Shadow)
	b = appendVarint(b, 14, uint64(s.Source))
	b = appendString(b, 15, s.Owner)
	return endMessage(b, begin)
}

// appendError appends a CheckError.
func appendError(b []byte, number protowire.Number, err *status.Status) []byte {
	b, begin := beginMessage(b, number)
	b = appendVarint(b, 1, uint64(int32(err.Code())))
	b = appendString(b, 2, err.Message())
	return endMessage(b, begin)
}

func appendVarint(b []byte, number protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(appendTag(b, number, protowire.VarintType), v)
}

func appendBool(b []byte, number protowire.Number, v bool) []byte {
	return appendVarint(b, number, protowire.EncodeBool(v))
}

func appendOptionalBool(b []byte, number protowire.Number, v *bool) []byte {
	if v == nil {
		return b
	}
	return protowire.AppendVarint(appendTag(b, number, protowire.VarintType), protowire.EncodeBool(*v))
}

func appendString(b []byte, number protowire.Number, v string) []byte {
	if v == "" {
		return b
	}
	return protowire.AppendString(appendTag(b, number, protowire.BytesType), v)
}

// appendTag is protowire.AppendTag, but for numbers up to 15, whose tags are a byte, faster.
func appendTag(b []byte, number protowire.Number, kind protowire.Type) []byte {
	if number > 15 {
		return protowire.AppendTag(b, number, kind)
	}
	return append(b, byte(number)<<3|byte(kind))
}

func appendDurationOf(b []byte, number protowire.Number, d *durationpb.Duration) []byte {
	if d == nil {
		return b
	}
	return appendDuration(b, number, int64(d.AsDuration()))
}

// appendDuration appends a Duration of so many nanoseconds.
func appendDuration(b []byte, number protowire.Number, ns int64) []byte {
	b, begin := beginMessage(b, number)
	b = appendVarint(b, 1, uint64(ns/int64(time.Second)))
	b = appendVarint(b, 2, uint64(ns%int64(time.Second)))
	return endMessage(b, begin)
}

// beginMessage begins a field that is a message, which endMessage ends.
func beginMessage(b []byte, number protowire.Number) (_ []byte, begin int) {
	b = append(appendTag(b, number, protowire.BytesType), 0)
	return b, len(b) // most are so short that a byte tells their length
}

func endMessage(b []byte, begin int) []byte {
	length := len(b) - begin
	if more := protowire.SizeVarint(uint64(length)) - 1; more > 0 {
		b = slices.Grow(b, more)[:len(b)+more]
		copy(b[begin+more:], b[begin:begin+length])
	}
	protowire.AppendVarint(b[:begin-1], uint64(length))
	return b
}
