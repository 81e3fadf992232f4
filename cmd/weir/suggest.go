package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/internal/backtest"
	"github.com/weirlimit/weir/rules"
)

// suggesting are the flags of suggestions.
type suggesting struct {
	rules     string
	per       []string
	windows   []time.Duration
	touch     float64
	headroom  float64
	algorithm string
	keys      int
	html      string
	asJSON    bool
	asYAML    bool
}

func (a *app) suggestCommand() *cobra.Command {
	var l logs
	var s suggesting
	cmd := &cobra.Command{
		Use:   "suggest --log FILE",
		Short: "Suggest limits for the traffic of a log",
		Long: `Read a log, and suggest limits and algorithms that touch at most --touch percent of the
well-behaved keys, with why. No node is asked, and nothing is changed.

There is a rule for each --per, or for each user and each ip if the format has them. With --rules, the
conditions and keys are those of these rules.

Keys that look like machines are not well-behaved: by their agent, by errors, by regular gaps, or by
a rate far above the others. They are listed with why.

With --yaml, the answer is a file of rules with enforce: 0, which "weir rules lint" accepts. A rule of
--rules that denies stays as it is, and a rule ID-suggested is added for it. --html
reads the logs a second time, and shows what the suggested limits would have denied.`,
		Example: `  weir suggest --log access.log
  weir suggest --log access.log --per user --window 1m --window 1h --yaml > limits.yaml
  weir suggest --log access.log --rules now.yaml --touch 0.1 --html report.html`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.suggest(cmd, &l, &s) },
	}
	l.addTo(cmd)
	f := cmd.Flags()
	f.Lookup("domain").Usage = "domain of the rules without --rules, and of the requests; a decision log names that of its requests"
	f.StringVar(&s.rules, "rules", "", "`FILE` or directory of rules that other limits are wanted for")
	f.StringArrayVar(&s.per, "per", nil, "`ATTRIBUTE` whose values are keys, or several with commas; each --per is a rule (default: user and ip)")
	f.DurationSliceVar(&s.windows, "window", []time.Duration{time.Minute}, "`DURATION` of a limit; several are limits of the same rule")
	f.Float64Var(&s.touch, "touch", 1, "`PERCENT` of the well-behaved keys of a rule that its limits may touch, 0 to 50")
	f.Float64Var(&s.headroom, "headroom", 20, "`PERCENT` that limits are higher than what keys of the log need")
	f.StringVar(&s.algorithm, "algorithm", "", "`ALGORITHM` of all limits: sliding_window or token_bucket (default: the tighter one)")
	f.IntVar(&s.keys, "keys", backtest.DefaultKeys, "`NUMBER` of keys that are measured at once, 1 to 2 KB each; of more, a sample is")
	f.StringVar(&s.html, "html", "", "write a report to this `FILE`: one page that needs nothing else")
	f.BoolVar(&s.asYAML, "yaml", false, "print rules that are not enforced yet")
	f.BoolVar(&s.asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) suggest(cmd *cobra.Command, l *logs, s *suggesting) error {
	c, err := s.config(cmd, l)
	if err != nil {
		return err
	}
	p := a.replayProgress()
	if p.out != nil {
		c.Progress = p.show
	}
	suggester, err := backtest.NewSuggester(c)
	if err != nil {
		return err
	}
	if err := a.readLogs(l, suggester, p); err != nil {
		return err
	}
	found := suggester.Result()
	if s.html != "" {
		if err := a.suggestionPage(cmd, l, s.html, found); err != nil {
			return err
		}
	}
	switch {
	case s.asJSON:
		return a.printJSON(found)
	case s.asYAML:
		text, err := found.YAML()
		if err != nil {
			return err
		}
		_, err = a.stdout.Write(text)
		return err
	}
	_, err = io.WriteString(a.stdout, formatSuggestion(found))
	return err
}

// config is what the flags say.
func (s *suggesting) config(cmd *cobra.Command, l *logs) (c backtest.SuggestConfig, err error) {
	switch {
	case s.asJSON && s.asYAML:
		return c, usageError(cmd, "--yaml: --json is given, too; choose one of them")
	case s.rules != "" && len(s.per) > 0:
		return c, usageError(cmd, "--per: the rules of --rules say themselves which attributes make a key")
	}
	var set *rules.Set
	if s.rules != "" {
		if set, err = rules.Load(s.rules); err != nil {
			return c, fmt.Errorf("--rules: %w", err)
		}
	}
	log, err := l.config(cmd, set, nil)
	if err != nil {
		return c, err
	}
	for _, path := range l.paths {
		if s.html != "" && path == "-" {
			return c, usageError(cmd, "--html: the logs are read twice, and standard input can be read once; name a file")
		}
	}
	c = backtest.SuggestConfig{Config: log, Windows: s.windows, Touch: s.touch, Headroom: s.headroom, MaxKeys: s.keys}
	if s.keys == 0 { // to the package, its default
		return c, usageError(cmd, "--keys: 0 is not between %d and %d", backtest.LeastKeys, backtest.MostKeys)
	}
	for _, set := range s.per {
		c.Per = append(c.Per, strings.Split(set, ","))
	}
	if s.algorithm != "" {
		var known bool
		if c.Algorithm, known = algorithms.Parse(s.algorithm); !known {
			return c, usageError(cmd, "--algorithm: %q is not sliding_window or token_bucket", s.algorithm)
		}
	}
	return c, nil
}

// suggestionPage replays the logs through the suggested rules, as if they were enforced, and writes the report.
func (a *app) suggestionPage(cmd *cobra.Command, l *logs, path string, found *backtest.Suggestion) error {
	set, err := rules.Compile("suggested", found.Documents(100))
	if err != nil {
		return err
	}
	c, err := l.config(cmd, set, nil)
	if err != nil {
		return err
	}
	run, err := a.replay(l, c)
	if err != nil {
		return err
	}
	result := run.Result()
	result.Suggestion = found
	return writeReport(path, result)
}
