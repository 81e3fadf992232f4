// Package snapshot reads and writes files of counters, by which a cluster remembers them when all of its nodes
// are restarted. It knows nothing of what the records mean.
//
// A file is the line "weir snapshot 1" and blocks. A block is its length, 4 bytes, the XXH64 of the rest, 8, its
// kind, 1, and its content. Numbers are little-endian. The first block is the head, the last one the end, which
// says how many there are between them.
package snapshot
