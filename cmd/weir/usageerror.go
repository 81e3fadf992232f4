package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usageError says that the command line of cmd makes no sense.
func usageError(cmd *cobra.Command, format string, args ...any) error {
	return &exitError{err: fmt.Errorf(format, args...), code: 2, help: cmd.CommandPath()}
}

// knownCommand refuses what is no command of a command that only has others. It is
// not left to cobra, which answers with several lines.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	return usageError(cmd, "unknown command %q%s", args[0], didYouMean(args[0], names))
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usageError(cmd, "%s takes no arguments, but got %q", cmd.Name(), args[0])
}

// flagError rewrites pflag's errors, which speak of strconv and of invalid
// arguments, as one sentence.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
		name := "--" + unknown.GetSpecifiedName()
		return usageError(cmd, "unknown flag %s%s", name, didYouMean(name, names))
	}
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		return usageError(cmd, "--%s: %q is not %s", invalid.GetFlag().Name, invalid.GetValue(),
			allowedValues(invalid.GetFlag().Value.Type()))
	}
	return usageError(cmd, "%w", err)
}

// allowedValues describes a pflag type.
func allowedValues(kind string) string {
	switch kind {
	case "int", "int64", "int64Slice":
		return "a whole number"
	case "float64":
		return "a number"
	case "duration", "durationSlice":
		return "a duration, such as 500ms or 2s"
	case "bool":
		return "true or false"
	}
	return "a " + kind
}

// didYouMean returns a question to append to an error about name, or nothing if
// no candidate looks like it.
func didYouMean(name string, candidates []string) string {
	const most = 2 // two typing mistakes; more would suggest other words
	best, distance := "", most+1
	for _, c := range candidates {
		if d := editDistance(name, c); d < distance && d < len(c) {
			best, distance = c, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// editDistance counts the bytes to insert, remove or replace to get from a to b
// (Levenshtein 1965).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1) // row[j]: from a[:i] to b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
