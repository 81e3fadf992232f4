// Package node provides a whole Weir node: it builds the parts, starts them in an
// order in which each finds what it needs, and stops them in an order in which
// nobody misses it.
package node
