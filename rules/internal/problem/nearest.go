package problem

import "slices"

// Nearest returns the name that s may be a typo of, or "".
func Nearest(s string, names []string) string {
	best, bestDistance := "", 3
	for _, name := range names {
		// A third of the letters wrong is another word, not a typo.
		if d := distance(s, name); d < bestDistance && 3*d <= len(name)+1 {
			best, bestDistance = name, d
		}
	}
	return best
}

// distance is how many bytes to insert, delete or replace to make b of a
// (Levenshtein), or more than len(b) if their lengths tell that it is much.
func distance(a, b string) int {
	if len(a) > 2*len(b) {
		return len(a)
	}
	row := make([]int, len(b)+1) // distances of a[:i] to every b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = slices.Min([]int{replace, row[j] + 1, row[j+1] + 1})
		}
	}
	return row[len(b)]
}
