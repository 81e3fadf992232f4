package docs

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Parts of a decision: its number in the name of the file, its title, and the line below it.
var (
	decisionFile   = regexp.MustCompile(`^(\d{4})-[a-z0-9-]+\.md$`)
	decisionStatus = regexp.MustCompile(`^Status: (proposed|accepted|superseded by \[ADR \d+\]\([^)]+\))\. Date: (\d{4}-\d{2}-\d{2})\.`)
)

// decisionParts are the headings of a decision, in this order. One may say more than the word, such as
// "Decision: token leases", and stand more than once.
var decisionParts = []string{"Context", "Decision", "Consequences"}

// TestDecisions: each decision has a title, a status, a date, its context, the decision and its consequences.
func TestDecisions(t *testing.T) {
	files, err := os.ReadDir("../../docs/adr")
	if err != nil {
		t.Fatal(err)
	}
	numbers := make(map[string]string)
	for _, file := range files {
		if file.Name() == "README.md" {
			continue
		}
		source, err := os.ReadFile(filepath.Join("../../docs/adr", file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range decisionProblems(file.Name(), string(source)) {
			t.Errorf("docs/adr/%s: %s", file.Name(), problem)
		}
		number, _, _ := strings.Cut(file.Name(), "-")
		if other := numbers[number]; other != "" {
			t.Errorf("%s and %s have one number", other, file.Name())
		}
		numbers[number] = file.Name()
	}
	if len(numbers) < 20 {
		t.Fatalf("found only %d decisions", len(numbers))
	}
	index, err := os.ReadFile("../../docs/adr/README.md")
	if err != nil {
		t.Fatal(err)
	}
	if missing := missingNumbers(slices.Sorted(maps.Keys(numbers))); skippedNumbers(string(index)) != strings.Join(missing, " and ") {
		t.Errorf("docs/adr/README.md says that there are no decisions %q, and the files lack %q", skippedNumbers(string(index)), missing)
	}
}

// skipped is the sentence of the index about numbers that no decision has.
var skipped = regexp.MustCompile(`There are no decisions ([0-9 and]+)\.`)

// skippedNumbers returns the numbers in that sentence, such as "24 and 25", or nothing.
func skippedNumbers(index string) string {
	found := skipped.FindStringSubmatch(index)
	if found == nil {
		return ""
	}
	return found[1]
}

// missingNumbers returns the numbers that are missing among those of sorted decisions, which begin with 0001.
func missingNumbers(numbers []string) (missing []string) {
	next := 1
	for _, number := range numbers {
		n, err := strconv.Atoi(number)
		if err != nil {
			continue // decisionProblems names such a file
		}
		for ; next < n; next++ {
			missing = append(missing, strconv.Itoa(next))
		}
		next = n + 1
	}
	return missing
}

func TestMissingNumbers(t *testing.T) {
	if got := missingNumbers([]string{"0002", "0003", "0006"}); !slices.Equal(got, []string{"1", "4", "5"}) {
		t.Errorf("%q", got)
	}
	if got := skippedNumbers("Text. There are no decisions 24 and 25. More."); got != "24 and 25" {
		t.Errorf("%q", got)
	}
}

// decisionProblems returns what a decision lacks, a sentence for each.
func decisionProblems(name, text string) (problems []string) {
	number := decisionFile.FindStringSubmatch(name)
	if number == nil {
		return []string{"the file is not named NNNN-decision.md"}
	}
	lines := strings.Split(text, "\n")
	if want := fmt.Sprintf("# %s. ", strings.TrimLeft(number[1], "0")); !strings.HasPrefix(lines[0], want) {
		problems = append(problems, fmt.Sprintf("the title does not begin with %q", want))
	}
	status := decisionStatus.FindStringSubmatch(strings.Join(lines[min(2, len(lines)):], " "))
	if status == nil {
		problems = append(problems, "below the title is no line such as \"Status: accepted. Date: 2026-11-22.\"")
	} else if _, err := time.Parse(time.DateOnly, status[2]); err != nil {
		problems = append(problems, err.Error())
	}
	var parts []string
	for _, line := range lines {
		heading, found := strings.CutPrefix(line, "## ")
		if part, _, _ := strings.Cut(heading, ":"); found && slices.Contains(decisionParts, part) {
			parts = append(parts, part)
		}
	}
	if parts = slices.Compact(parts); !slices.Equal(parts, decisionParts) {
		problems = append(problems, fmt.Sprintf("the headings are %q, not %q", parts, decisionParts))
	}
	return problems
}

func TestDecisionProblems(t *testing.T) {
	const good = "# 7. Rules are checked twice\n\nStatus: accepted. Date: 2026-11-22.\n\n## Context\n\n## Decision: one\n\n## Decision: two\n\n## Consequences\n"
	for _, tc := range []struct{ name, old, new, want string }{
		{"0007-rules.md", "", "", ""},
		{"7-rules.md", "", "", "not named"},
		{"0017-rules.md", "", "", `begin with "# 17. "`},
		{"0007-rules.md", "Status: accepted.", "Status: decided.", "no line such as"},
		{"0007-rules.md", "Status: accepted.", "Status: superseded.", "no line such as"},
		{"0007-rules.md", "Status: accepted.", "Status: superseded by [ADR 8](0008-x.md).", ""},
		{"0007-rules.md", "2026-11-22", "2026-11-42", "out of range"},
		{"0007-rules.md", "## Context", "## Background", `["Decision" "Consequences"]`},
		{"0007-rules.md", "## Consequences", "### Consequences", `["Context" "Decision"]`},
	} {
		got := strings.Join(decisionProblems(tc.name, strings.Replace(good, tc.old, tc.new, 1)), "\n")
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s with %q: %q, not %q", tc.name, tc.new, got, tc.want)
		}
	}
}
