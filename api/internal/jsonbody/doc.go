// Package jsonbody reads and writes the JSON of HTTP bodies as the gateway does, with errors that say where in a
// body they are.
package jsonbody
