package e2e

import (
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// typed begins what is typed into weir dev, as a command too.
const typed = "> "

// step is one thing that a reader of a document does.
type step struct {
	command string
	line    int     // of the document
	output  *string // what the document shows; nil if nothing
}

var (
	fence     = regexp.MustCompile("^```(\\w*)$")
	directive = regexp.MustCompile(`^<!-- (run|repeat): (.*) -->$`)
)

// steps reads the commands of a document in Markdown, in order. A command is
//
//   - a line that begins with "$ " in a block without a language or of the language console, with its
//     output below it; or with "> ", if it is typed into weir dev;
//   - a line of an indented block, or of one of the language sh, that begins with one of the programs;
//   - a comment: <!-- run: COMMAND -->, for what the reader is told in words, or would have done before.
//
// A block that begins with "HTTP/" is the output of the command before it. Behind the comment
// <!-- repeat: N --> that is what the command prints when it is repeated for the N-th time.
func steps(document string, programs []string) (all []step) {
	r := reader{programs: programs}
	for i, line := range strings.Split(document, "\n") {
		r.read(line, i+1)
	}
	return r.steps
}

// reader is what is known between two lines of a document.
type reader struct {
	programs []string
	steps    []step

	fenced   bool
	language string
	block    []string // lines of the fenced block so far
	begin    int      // its first line in the document
	repeat   int      // for the next block
	partial  string   // a command that ends in a backslash, which the next line continues
}

func (r *reader) read(line string, number int) {
	marker := fence.FindStringSubmatch(line)
	switch {
	case marker != nil && !r.fenced:
		r.fenced, r.language, r.block, r.begin = true, marker[1], nil, number+1
	case marker != nil:
		r.fenced = false
		r.endBlock()
	case r.fenced:
		r.block = append(r.block, line)
	case strings.HasPrefix(line, "    "):
		r.command(line[4:], number)
	default:
		r.comment(line, number)
	}
}

func (r *reader) comment(line string, number int) {
	found := directive.FindStringSubmatch(line)
	switch {
	case found == nil:
	case found[1] == "run":
		r.steps = append(r.steps, step{command: found[2], line: number})
	default:
		r.repeat, _ = strconv.Atoi(found[2])
	}
}

// command reads a line of a block that shows no outputs.
func (r *reader) command(line string, number int) {
	line = r.partial + line
	r.partial = ""
	if !r.isCommand(line) {
		return
	}
	if begin, continues := strings.CutSuffix(line, `\`); continues {
		r.partial = begin
		return
	}
	r.steps = append(r.steps, step{command: line, line: number})
}

func (r *reader) isCommand(line string) bool {
	for _, p := range r.programs {
		if strings.HasPrefix(line, p+" ") {
			return true
		}
	}
	return false
}

func (r *reader) endBlock() {
	switch {
	case r.language == "sh":
		for i, line := range r.block {
			r.command(line, r.begin+i)
		}
	case r.language != "" && r.language != "console":
	case len(r.block) > 0 && strings.HasPrefix(r.block[0], "HTTP/") && len(r.steps) > 0:
		r.outputOfLast()
	default:
		r.session()
	}
	r.repeat = 0
}

// outputOfLast reads a block that is the output of the command before it.
func (r *reader) outputOfLast() {
	last := &r.steps[len(r.steps)-1]
	for range r.repeat {
		r.steps = append(r.steps, step{command: last.command, line: r.begin})
		last = &r.steps[len(r.steps)-1]
	}
	shown := strings.Join(r.block, "\n")
	last.output, last.line = &shown, r.begin
}

// session reads a block of commands, each with its output.
func (r *reader) session() {
	var command *step
	continues := false
	for i, line := range r.block {
		shown, begins := strings.CutPrefix(line, "$ ")
		if strings.HasPrefix(line, typed) {
			shown, begins = line, true
		}
		switch {
		case continues:
			command.command += strings.TrimSpace(line)
		case begins:
			r.steps = append(r.steps, step{command: shown, line: r.begin + i})
			command = &r.steps[len(r.steps)-1]
		case command == nil: // a diagram, or the contents of a file
			return
		case command.output == nil:
			command.output = &line
		default:
			*command.output += "\n" + line
		}
		if command != nil && command.output == nil {
			command.command, continues = strings.CutSuffix(command.command, `\`)
		}
	}
}

// Lines that end before their command does, comments and repetitions are read as a reader understands them.
func TestSteps(t *testing.T) {
	shown := func(s string) *string { return &s }
	const document = "Start:\n\n    weir serve \\\n        --id a\n    make bench\n\n" +
		"<!-- run: rm x -->\n```console\n$ weir nodes\nNODE\n\na\n$ weir ring\n```\n\n" +
		"```sh\ncurl -i host\n```\n<!-- repeat: 2 -->\n```\nHTTP/1.1 429\n```\n\n```console\n> wait\nwhole\n```\n\n```yaml\n$ weir no\n```\n\n```\n|  weir no |\n```\n"
	want := []step{
		{command: "weir serve     --id a", line: 4},
		{command: "rm x", line: 7},
		{command: "weir nodes", line: 9, output: shown("NODE\n\na")},
		{command: "weir ring", line: 13},
		{command: "curl -i host", line: 17},
		{command: "curl -i host", line: 21},
		{command: "curl -i host", line: 21, output: shown("HTTP/1.1 429")},
		{command: "> wait", line: 25, output: shown("whole")},
	}
	if got := steps(document, []string{"weir", "curl"}); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}
