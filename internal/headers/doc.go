// Package headers writes the answer of a limit for clients: as header fields, as a problem
// document of HTTP, and as a gRPC status. Package httplimit and package grpclimit have the
// part of it that programs use.
package headers
