package api

import (
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir/api/internal/wire"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// This file reads the messages that ask for checks, package envoy those of Envoy. Cases are
// the fields' numbers in the .proto files, and how they are encoded; what has another
// number or encoding is skipped.

// decodeRequest decodes a RateLimitRequest into one that may have been used before.
func decodeRequest(p wire.Part, into *weirv1.RateLimitRequest) error {
	attributes := into.Attributes
	if len(attributes) > extraAttributes {
		attributes = nil // a map that was large once is slow to clear
	}
	clear(attributes)
	*into = weirv1.RateLimitRequest{Attributes: attributes}
	f := wire.FieldsOf(p)
	for f.Next() {
		switch f.Tag {
		case 1<<3 | wire.AsBytes:
			into.Identifier = f.Text("identifier")
		case 2<<3 | wire.AsBytes:
			into.IdentifierType = f.Text("identifier_type")
		case 3<<3 | wire.AsBytes:
			into.Endpoint = f.Text("endpoint")
		case 4<<3 | wire.AsVarint:
			into.TokensRequested = int64(f.Varint)
		case 5<<3 | wire.AsVarint:
			into.Timestamp = int64(f.Varint)
		case 6<<3 | wire.AsBytes:
			into.Domain = f.Text("domain")
		case 7<<3 | wire.AsBytes:
			f.Err = decodeAttribute(f.Part, into)
		case 8<<3 | wire.AsVarint:
			into.Peek = f.Varint != 0
		case 9<<3 | wire.AsVarint:
			into.Lease = int64(f.Varint)
		case 10<<3 | wire.AsVarint:
			into.DebitedAt = int64(f.Varint)
		}
	}
	return f.Err
}

func decodeAttribute(p wire.Part, into *weirv1.RateLimitRequest) error {
	key, value, err := decodePair(p)
	if err != nil {
		return wire.Under("attributes", err)
	}
	if into.Attributes == nil {
		into.Attributes = make(map[string]string)
	}
	into.Attributes[key] = value
	return nil
}

// decodePair decodes a key and a value: an entry of a map.
func decodePair(p wire.Part) (key, value string, err error) {
	f := wire.FieldsOf(p)
	for f.Next() {
		switch f.Tag {
		case 1<<3 | wire.AsBytes:
			key = f.Text("key")
		case 2<<3 | wire.AsBytes:
			value = f.Text("value")
		}
	}
	return key, value, f.Err
}

// decodeBatch adds the requests of a RateLimitBatchRequest to l.
func decodeBatch(p wire.Part, l *wire.List) error {
	f := wire.FieldsOf(p)
	for f.Next() {
		if f.Tag == 1<<3|wire.AsBytes {
			l.Add(f.Part, maxBatch)
		}
	}
	return f.Err
}

// decodeStream adds the requests of a StreamRateLimitsRequest to l, and decodes the rest
// of it into head, as far as it can be.
func decodeStream(p wire.Part, l *wire.List, head *weirv1.StreamRateLimitsRequest) error {
	f := wire.FieldsOf(p)
	for f.Next() {
		switch f.Tag {
		case 1<<3 | wire.AsVarint:
			head.Id = f.Varint
		case 2<<3 | wire.AsBytes:
			l.Add(f.Part, maxBatch)
		case 3<<3 | wire.AsBytes:
			if head.Timeout == nil {
				head.Timeout = new(durationpb.Duration)
			}
			f.Err = decodeDuration(f.Part, head.Timeout)
		case 4<<3 | wire.AsBytes:
			head.Traceparent = f.Text("traceparent")
		}
	}
	return f.Err
}

func decodeDuration(p wire.Part, into *durationpb.Duration) error {
	f := wire.FieldsOf(p)
	for f.Next() {
		switch f.Tag {
		case 1<<3 | wire.AsVarint:
			into.Seconds = int64(f.Varint)
		case 2<<3 | wire.AsVarint:
			into.Nanos = int32(f.Varint)
		}
	}
	return f.Err
}
