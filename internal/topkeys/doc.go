// Package topkeys provides lists of the keys with the most checks and denials, in bounded memory.
//
// A Recorder holds the lists of one node. The API draws a sample of the events of each rule with a Pace, and records
// what it has drawn. Lists of several nodes are put together with Merge.
//
// The lists are Space-Saving summaries: A. Metwally, D. Agrawal, A. El Abbadi, "Efficient Computation of Frequent and
// Top-k Elements in Data Streams", ICDT 2005. They are merged, over intervals and over nodes, as in M. Cafaro,
// M. Pulimeno, P. Tempesta, "A parallel space saving algorithm for frequent items and the Hurwitz zeta distribution",
// Information Sciences 329 (2016), which keeps the bound of the error: with m counters and n events, a count is
// wrong by n/m at most, and a key with more than n/m events is listed.
package topkeys
