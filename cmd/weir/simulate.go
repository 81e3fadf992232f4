package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/backtest"
	"github.com/weirlimit/weir/rules"
)

// logs are the flags about logs that are replayed.
type logs struct {
	paths     []string
	format    string
	maps      []string
	domain    string
	timeField string
}

func (l *logs) addTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&l.paths, "log", nil, "log `FILE` to replay, also one of gzip, or - for standard input; several are read in this order")
	f.StringVar(&l.format, "format", backtest.Combined, "format of the logs: "+strings.Join(backtest.Formats, ", "))
	f.StringArrayVar(&l.maps, "map", nil, "where an attribute stands, as `ATTRIBUTE=$FIELD`, or ATTRIBUTE=VALUE for all lines")
	f.StringVar(&l.domain, "domain", "default", "domain of the requests; a decision log names its own")
	f.StringVar(&l.timeField, "time-field", "", "field of the time in formats json and csv (default: time, timestamp, ts or the like)")
}

// config is what the flags say about a run under rules.
func (l *logs) config(cmd *cobra.Command, set, against *rules.Set) (backtest.Config, error) {
	c := backtest.Config{Rules: set, Against: against, Format: l.format, Domain: l.domain, TimeField: l.timeField}
	if len(l.paths) == 0 {
		return c, usageError(cmd, "--log: name at least one file, or - for standard input")
	}
	for _, text := range l.maps {
		m, err := backtest.ParseMapping(text)
		if err != nil {
			return c, usageError(cmd, "--map: %w", err)
		}
		c.Map = append(c.Map, m)
	}
	return c, nil
}

func (a *app) simulateCommand() *cobra.Command {
	var l logs
	var path, against, html string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "simulate --rules FILE --log FILE",
		Short: "Try rules on the traffic of a log",
		Long: `Replay a log through rules, in the time of the log, and show what they would have denied: by
rule, of which keys and when. Rules and algorithms are those of a node; no node is asked. With
--against, show what differs from other rules.

Fields of a format become attributes: those of combined are ip=$remote_addr, user=$remote_user,
method=$request_method and endpoint=$path. --map changes or adds some. Formats json and csv name
their fields themselves. A field of an object in JSON is named with dots, such as
$request.headers.host.

Lines that are no requests and fields that are missing are counted and shown. A line that is earlier
than one before counts as of the same instant.`,
		Example: `  weir simulate --rules new.yaml --log access.log
  weir simulate --rules new.yaml --against now.yaml --log access.log.1.gz --log access.log --html report.html
  weir simulate --rules new.yaml --log - --format json --map 'user=$claims.sub' --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if path == "" {
				return usageError(cmd, "--rules: name a file or a directory")
			}
			result, err := a.simulate(cmd, &l, path, against)
			if err != nil {
				return err
			}
			if html != "" {
				if err := writeReport(html, result); err != nil {
					return err
				}
			}
			return a.printResult(result, asJSON, against != "")
		},
	}
	l.addTo(cmd)
	cmd.Flags().StringVar(&path, "rules", "", "`FILE` or directory of the rules to try")
	cmd.Flags().StringVar(&against, "against", "", "`FILE` or directory of rules to compare them with")
	cmd.Flags().StringVar(&html, "html", "", "write a report to this `FILE`: one page that needs nothing else")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) simulate(cmd *cobra.Command, l *logs, path, against string) (*backtest.Result, error) {
	set, err := rules.Load(path)
	if err != nil {
		return nil, fmt.Errorf("--rules: %w", err)
	}
	var other *rules.Set
	if against != "" {
		if other, err = rules.Load(against); err != nil {
			return nil, fmt.Errorf("--against: %w", err)
		}
	}
	c, err := l.config(cmd, set, other)
	if err != nil {
		return nil, err
	}
	run, err := a.replay(l, c)
	if err != nil {
		return nil, err
	}
	return run.Result(), nil
}

// replay reads all logs.
func (a *app) replay(l *logs, c backtest.Config) (*backtest.Run, error) {
	p := a.replayProgress()
	if p.out != nil {
		c.Progress = p.show
	}
	run, err := backtest.New(c)
	if err != nil {
		return nil, err
	}
	return run, a.readLogs(l, run, p)
}

// logReader takes in logs.
type logReader interface {
	Read(name string, from io.Reader) error
}

// readLogs reads all logs, and shows how far it is.
func (a *app) readLogs(l *logs, into logReader, p *progress) error {
	for _, path := range l.paths {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			p.bytes += info.Size()
		}
	}
	for _, path := range l.paths {
		if err := a.replayOne(into, path, p); err != nil {
			return err
		}
	}
	p.clear()
	return nil
}

// replayProgress returns one that is shown on a terminal only: else its out is nil.
func (a *app) replayProgress() *progress {
	p := &progress{started: time.Now()}
	if isTerminal(a.stderr) {
		p.out = a.stderr
	}
	return p
}

func (a *app) replayOne(run logReader, path string, p *progress) (err error) {
	if path == "-" {
		return run.Read("stdin", p.counted(a.stdin))
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("--log: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return run.Read(path, p.counted(f))
}

// progress shows how far the replay is.
type progress struct {
	out         io.Writer
	started     time.Time
	last        time.Time
	bytes, read int64 // of the files as they are; bytes is 0 if that is not known
	shown       bool
}

func (p *progress) counted(r io.Reader) io.Reader { return &countedReader{r, &p.read} }

type countedReader struct {
	r io.Reader
	n *int64
}

func (c *countedReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	*c.n += int64(n)
	return n, err
}

func (p *progress) show(lines int64) {
	now := time.Now()
	if now.Sub(p.last) < time.Second/4 {
		return
	}
	p.last, p.shown = now, true
	took := now.Sub(p.started)
	rate := float64(lines) / took.Seconds()
	text := fmt.Sprintf("%d lines, %.0f lines/s", lines, rate)
	if p.bytes > 0 && p.read > 0 {
		share := min(1, float64(p.read)/float64(p.bytes))
		left := time.Duration(float64(took) * (1 - share) / share)
		text = fmt.Sprintf("%.0f%%, %s, %s left", 100*share, text, left.Round(time.Second))
	}
	fmt.Fprintf(p.out, "\r%-70s", text)
}

// clear removes the line.
func (p *progress) clear() {
	if p.shown {
		fmt.Fprintf(p.out, "\r%-70s\r", "")
	}
}

func (a *app) printResult(r *backtest.Result, asJSON, compared bool) error {
	if asJSON {
		return a.printJSON(r)
	}
	_, err := io.WriteString(a.stdout, formatSimulation(r, compared))
	return err
}

func (a *app) printJSON(v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = io.WriteString(a.stdout, string(b)+"\n")
	return err
}

// writeReport writes the page to a file that only its owner reads: it has keys of the log.
func writeReport(path string, r *backtest.Result) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Chmod(0o600); err != nil { // of a file that was there
		return fmt.Errorf("--html: %w", err)
	}
	return r.WriteHTML(f)
}
