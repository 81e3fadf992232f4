// Package hostile asks a real node for what callers must not have: more than each bound permits, and what abuses HTTP/2,
// HTTP/1.1 and the protocol between nodes. Its tests hold the table of bounds in docs/reference/bounds.md. Floods of names ask real nodes
// for more counters than they have memory for, and for names that are to meet in one place. make hostile plays all
// abuse for longer, and compares the latency of other callers.
//
// The tests run in real time, and take more than 10 s: they measure the memory of a node, and the processor time that an
// attack costs it, while its sockets and timeouts are those of the kernel.
package hostile
