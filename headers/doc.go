// Package headers tells the answer of a limit to clients: in header fields, as a problem
// document of HTTP, and as a gRPC status. It decides nothing and knows no node.
package headers
