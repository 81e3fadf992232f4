package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
)

// The values of --by and --window.
var (
	topOrders  = []string{"checks", "denied", "would_deny"}
	topWindows = []string{"1m", "1h"}
)

// topEvery is how often weir top asks again.
const topEvery = time.Second

// Escape sequences of a terminal: to begin at the top again, to clear the rest of a line, and of the screen, and to cut lines
// that are wider than the terminal, or go on in the next line.
const (
	cursorHome = "\x1b[H"
	clearLine  = "\x1b[K"
	clearRest  = "\x1b[J"
	cutLines   = "\x1b[?7l"
	wrapLines  = "\x1b[?7h"
)

// topping is a call of weir top.
type topping struct {
	nodeFlags
	request weirv1.ListTopKeysRequest
	limit   int
	once    bool
}

func (a *app) topCommand() *cobra.Command {
	var q topping
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show which keys are asked for most, or denied most",
		Long: `Show the keys with the most checks or denials over all nodes, in the last minute or hour:

  RULE     the rule that counts for the key, with its domain unless that is "default"
  KEY      the attributes that the rule counts by
  checks   how many checks there were for certain, or denials as --by says
  PER S    the same per second
  ERROR    by how much that can be wrong: +N that lists with limited room have not counted,
           and ±N if nodes count a sample, at 95 %

On a terminal the list is shown again each second, until Ctrl-C. Otherwise, and with --once or --json,
it is printed once. Values are quoted if they could direct the terminal. Nodes that do not answer are
named, and the exit code is 2 then if the list is printed once. It needs the role rules.`,
		Example: `  weir top
  weir top --by denied --rule login
  weir top --by would_deny --window 1h --once
  weir top --by denied --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.top(cmd, &q) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&q.request.By, "by", topOrders[0], "sort by `WHAT`: checks, denied, or would_deny for denials that enforce below 100 does not enforce")
	flags.StringVar(&q.request.Window, "window", topWindows[0], "count the last `TIME`: 1m or 1h")
	flags.StringVar(&q.request.RuleId, "rule", "", "show only keys of the rule of this `ID`")
	flags.StringVar(&q.request.Domain, "domain", "", "show only rules of `DOMAIN` (default all, or \"default\" with --rule)")
	flags.IntVarP(&q.limit, "limit", "n", 10, "show at most `NUMBER` keys, 1 to 200")
	flags.BoolVar(&q.once, "once", false, "print the list once")
	q.addTo(cmd)
	a.completeValues(cmd, "by", topOrders)
	a.completeValues(cmd, "window", topWindows)
	return cmd
}

// completeValues has shells complete a flag's value.
func (a *app) completeValues(cmd *cobra.Command, flag string, values []string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // there is no such flag
	}
}

func (a *app) top(cmd *cobra.Command, q *topping) error {
	switch {
	case !slices.Contains(topOrders, q.request.GetBy()):
		return usageError(cmd, "--by: %q is not one of %s", q.request.GetBy(), strings.Join(topOrders, ", "))
	case !slices.Contains(topWindows, q.request.GetWindow()):
		return usageError(cmd, "--window: %q is not one of %s", q.request.GetWindow(), strings.Join(topWindows, ", "))
	case q.limit < 1 || q.limit > 200:
		return usageError(cmd, "--limit: %d is not between 1 and 200", q.limit)
	}
	q.request.Limit = uint32(q.limit)
	if q.timeout <= 0 { // watchTop has another one for ask
		return usageError(cmd, "--timeout: %v is not above 0", q.timeout)
	}
	if _, shown := terminalRows(a.stdout); shown && !q.once && !q.json {
		return a.watchTop(cmd, q)
	}
	return a.ask(cmd, &q.nodeFlags, func(ctx context.Context, c *client.Node) error {
		response, err := c.ListTopKeys(ctx, &q.request)
		if err != nil {
			return err
		}
		if err := a.print(q.json, response, formatTop(response, q.request.GetBy())); err != nil {
			return err
		}
		return missingNodes(response)
	})
}

// missingNodes is the error for a list without the checks of some nodes, nil if there are none.
func missingNodes(response *weirv1.ListTopKeysResponse) error {
	var missing []string
	for _, u := range response.GetUnanswered() {
		missing = append(missing, fmt.Sprintf("%s (%s)", u.GetId(), u.GetReason()))
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("the checks of %s are missing", strings.Join(missing, ", "))
}

// watchTop shows the list over and over in the same place, until the context of cmd or a signal ends it. An error of the first
// call ends it too; later ones are shown.
func (a *app) watchTop(cmd *cobra.Command, q *topping) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd.SetContext(ctx)
	timeout := q.timeout
	q.timeout = 1<<63 - 1 // of all calls; each has its own
	first := true
	return a.ask(cmd, &q.nodeFlags, func(ctx context.Context, c *client.Node) error {
		tick := time.NewTicker(topEvery)
		defer tick.Stop()
		for {
			call, cancel := context.WithTimeout(ctx, timeout)
			response, err := c.ListTopKeys(call, &q.request)
			cancel()
			if ctx.Err() != nil {
				return nil
			}
			if err != nil && (first || !isPassing(err)) {
				return err
			}
			a.showTop(response, err, q.request.GetBy(), first)
			first = false
			select {
			case <-tick.C:
			case <-ctx.Done():
				return nil
			}
		}
	})
}

// isPassing reports whether a call may succeed later.
func isPassing(err error) bool {
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded || code == codes.ResourceExhausted
}

// showTop writes the list, or an error, over what was there before.
func (a *app) showTop(response *weirv1.ListTopKeysResponse, err error, by string, first bool) {
	var text string
	if err != nil {
		text = "no answer, asking again: " + quoteText(status.Convert(err).Message()) + "\n"
	} else {
		text = formatTop(response, by)
		if missing := missingNodes(response); missing != nil {
			text += quoteText(missing.Error()) + "\n"
		}
	}
	rows, _ := terminalRows(a.stdout)
	text = fitRows(text, rows)
	begin := cutLines + cursorHome
	if first {
		begin += clearRest
	}
	fmt.Fprint(a.stdout, begin+strings.ReplaceAll(text, "\n", clearLine+"\n")+clearRest+wrapLines)
}

// fitRows cuts a text to the rows of a terminal, of which the cursor needs one: a text that scrolls would not be written over.
// 0 rows are not known.
func fitRows(text string, rows int) string {
	lines := strings.SplitAfter(text, "\n") // the last one is empty
	if rows <= 0 || len(lines) <= rows {
		return text
	}
	kept := max(0, rows-2)
	return strings.Join(lines[:kept], "") + fmt.Sprintf("%d more lines: the terminal is too low\n", len(lines)-1-kept)
}

// formatTop returns a line per key.
func formatTop(response *weirv1.ListTopKeysResponse, by string) string {
	var out strings.Builder
	seconds := max(1, response.GetSeconds())
	fmt.Fprintf(&out, "by %s, last %v, nodes %s\n\n", by, time.Duration(seconds)*time.Second, strings.Join(response.GetNodes(), " "))
	if len(response.GetKeys()) == 0 {
		out.WriteString("no keys\n")
		return out.String()
	}
	table := newTable(&out, "RULE", "KEY", strings.ToUpper(by), "PER S", "ERROR")
	for _, k := range response.GetKeys() {
		rule := k.GetRuleId()
		if k.GetDomain() != "default" {
			rule = k.GetDomain() + "/" + rule
		}
		table.row(quoteText(rule), formatKey(k), k.GetCount(), fmt.Sprintf("%.1f", float64(k.GetCount())/float64(seconds)), formatError(k))
	}
	table.flush()
	return out.String()
}

// formatKey returns the attributes of a key on one line.
func formatKey(k *weirv1.TopKey) string {
	var entries []string
	for _, e := range k.GetEntries() {
		text := quoteText(e.GetKey()) + "=" + quoteText(e.GetValue())
		if e.GetCut() {
			text += "..."
		}
		entries = append(entries, text)
	}
	return cmp.Or(strings.Join(entries, " "), "(all requests)")
}

// formatError returns how much a count can be wrong.
func formatError(k *weirv1.TopKey) string {
	var parts []string
	if n := k.GetUncounted(); n > 0 {
		parts = append(parts, fmt.Sprintf("+%d", n))
	}
	if n := k.GetStandardError(); n > 0 {
		parts = append(parts, fmt.Sprintf("±%d", 2*n))
	}
	return cmp.Or(strings.Join(parts, " "), "0")
}

// quoteText returns a text that clients have chosen so that it cannot direct the terminal or look like another column: quoted
// if it has more than printable characters.
func quoteText(s string) string {
	for _, r := range s {
		if !unicode.IsGraphic(r) || unicode.IsSpace(r) && r != ' ' || unicode.Is(unicode.Cf, r) || r == '"' || r == unicode.ReplacementChar {
			return strconv.QuoteToASCII(s)
		}
	}
	if strings.Contains(s, "  ") || strings.HasPrefix(s, " ") || strings.HasSuffix(s, " ") {
		return strconv.QuoteToASCII(s)
	}
	return s
}
