package pageplayer

import (
	"regexp"
	"strconv"
	"strings"
)

// Typed begins what is Typed into weir dev, as a command too.
const Typed = "> "

// Step is one thing that a reader of a document does.
type Step struct {
	Command string
	Line    int     // of the document
	Output  *string // what the document shows; nil if nothing
}

var (
	fence     = regexp.MustCompile("^( *)```(\\w*)$")
	directive = regexp.MustCompile(`^<!-- (run|repeat): (.*) -->$`)
)

// MachinePrograms are those of runbooks that look at a node's machine. Their commands need a machine with a service manager.
var MachinePrograms = []string{"openssl", "chronyc", "journalctl", "df"}

// Steps reads the commands of a document in Markdown, in order. A command is
//
//   - a line that begins with "$ " in a block without a language or of the language console, with its
//     output below it; or with "> ", if it is Typed into weir dev;
//   - a line of an indented block, or of one of the language sh, that begins with one of the programs;
//   - a comment: <!-- run: COMMAND -->, for what the reader is told in words, or would have done before.
//
// A block that begins with "HTTP/" is the output of the command before it. Behind the comment
// <!-- repeat: N --> that is what the command prints when it is repeated for the N-th time.
func Steps(document string, programs []string) (all []Step) {
	return read(document, programs).steps
}

// Unplayed returns what a document has in blocks of commands and Steps leaves out. These are lines of an indented block, or of one of the languages sh,
// bash, shell and console. They are no step, no output, not blank and no comment of a shell. Comments in Markdown are among them, unless they are a
// directive.
func Unplayed(document string, programs []string) []Step {
	return read(document, programs).unplayed
}

func read(document string, programs []string) *reader {
	r := &reader{programs: programs}
	for i, line := range strings.Split(document, "\n") {
		r.read(line, i+1)
	}
	last := strings.Count(document, "\n") + 1
	r.endCommand(last)
	if r.fenced {
		r.leaveOut("a block that does not end", last)
	}
	return r
}

// reader is what is known between two lines of a document.
type reader struct {
	programs []string
	steps    []Step
	unplayed []Step

	fenced   bool
	indent   string // of the fence
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
		r.fenced, r.indent, r.language, r.block, r.begin = true, marker[1], marker[2], nil, number+1
	case marker != nil:
		r.fenced = false
		r.endBlock()
	case r.fenced:
		r.block = append(r.block, strings.TrimPrefix(line, r.indent))
	case strings.HasPrefix(line, "    "):
		r.command(line[4:], number)
	default:
		r.endCommand(number)
		r.comment(line, number)
	}
}

func (r *reader) comment(line string, number int) {
	found := directive.FindStringSubmatch(line)
	switch {
	case found == nil && strings.HasPrefix(strings.TrimSpace(line), "<!--"):
		r.leaveOut(line, number)
	case found == nil:
	case found[1] == "run":
		r.steps = append(r.steps, Step{Command: found[2], Line: number})
	default:
		r.repeat, _ = strconv.Atoi(found[2])
	}
}

// command reads a line of a block that shows no outputs.
func (r *reader) command(line string, number int) {
	line = r.partial + line
	begin, continues := strings.CutSuffix(line, `\`)
	r.partial = ""
	switch {
	case continues:
		r.partial = begin
	case r.isCommand(line):
		r.steps = append(r.steps, Step{Command: line, Line: number})
	default:
		r.leaveOut(line, number)
	}
}

// endCommand notes a command that the line before has not finished.
func (r *reader) endCommand(number int) {
	if r.partial != "" {
		r.leaveOut(r.partial+`\`, number)
	}
	r.partial = ""
}

// leaveOut notes that no step has this line, unless it is blank or a comment of a shell.
func (r *reader) leaveOut(line string, number int) {
	if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
		r.unplayed = append(r.unplayed, Step{Command: line, Line: number})
	}
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
		r.endCommand(r.begin + len(r.block))
	case r.language == "bash", r.language == "shell":
		for i, line := range r.block {
			r.leaveOut(line, r.begin+i)
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
		r.steps = append(r.steps, Step{Command: last.Command, Line: r.begin})
		last = &r.steps[len(r.steps)-1]
	}
	shown := strings.Join(r.block, "\n")
	last.Output, last.Line = &shown, r.begin
}

// session reads a block of commands, each with its output.
func (r *reader) session() {
	var command *Step
	continues := false
	for i, line := range r.block {
		shown, begins := strings.CutPrefix(line, "$ ")
		if strings.HasPrefix(line, Typed) {
			shown, begins = line, true
		}
		switch {
		case continues:
			command.Command += strings.TrimSpace(line)
		case begins:
			r.steps = append(r.steps, Step{Command: shown, Line: r.begin + i})
			command = &r.steps[len(r.steps)-1]
		case command == nil: // a diagram, or the contents of a file
			if r.language == "console" {
				r.leaveOut(line, r.begin+i)
			}
			return
		case command.Output == nil:
			command.Output = &line
		default:
			*command.Output += "\n" + line
		}
		if command != nil && command.Output == nil {
			command.Command, continues = strings.CutSuffix(command.Command, `\`)
		}
	}
}
