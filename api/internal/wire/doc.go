// Package wire reads and writes messages as they travel: fields of protobuf by hand, handlers of gRPC that get
// and return encoded messages, and errors about fields. ADR 13 says why.
package wire
