// Package backtest replays logs of requests through rules, in the time of the log: what would have been denied, by which
// rule, of which keys and when.
//
// A Run reads lines. A parser for the log's format finds an instant and the attributes of a request in each, without an
// allocation. An engine then matches them with package rules and counts with package algorithms, as a node does: one
// engine for the rules, and one for those that they are compared with. Memory is bounded by the counters that are live
// at an instant of the log, and by the lists of a report, which have bounds of their own.
//
// A Suggester reads the same logs and measures what limit each key would have needed, by steps of package algorithms.
// It sets keys apart that look like machines, and suggests the tightest limits that touch few of the others.
package backtest
