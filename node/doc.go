// Package node provides a whole Weir node: it builds the parts, starts them in the order of their
// dependencies, and stops them so that no request fails.
package node
