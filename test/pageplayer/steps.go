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
	fence     = regexp.MustCompile("^```(\\w*)$")
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
	r := reader{programs: programs}
	for i, line := range strings.Split(document, "\n") {
		r.read(line, i+1)
	}
	return r.steps
}

// reader is what is known between two lines of a document.
type reader struct {
	programs []string
	steps    []Step

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
		r.steps = append(r.steps, Step{Command: found[2], Line: number})
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
	r.steps = append(r.steps, Step{Command: line, Line: number})
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
