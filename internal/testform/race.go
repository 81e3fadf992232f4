//go:build race

package testform

// RaceEnabled says whether the test and its nodes have the race detector, which makes
// them many times slower.
const RaceEnabled = true
