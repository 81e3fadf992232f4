package pageplayer

import (
	"reflect"
	"testing"
)

// Lines that end before their command does, comments and repetitions are read as a reader understands them.
func TestSteps(t *testing.T) {
	shown := func(s string) *string { return &s }
	const document = "Start:\n\n    weir serve \\\n        --id a\n    make bench\n\n" +
		"<!-- run: rm x -->\n```console\n$ weir nodes\nNODE\n\na\n$ weir ring\n```\n\n" +
		"```sh\ncurl -i host\n```\n<!-- repeat: 2 -->\n```\nHTTP/1.1 429\n```\n\n```console\n> wait\nwhole\n```\n\n```yaml\n$ weir no\n```\n\n```\n|  weir no |\n```\n"
	want := []Step{
		{Command: "weir serve     --id a", Line: 4},
		{Command: "rm x", Line: 7},
		{Command: "weir nodes", Line: 9, Output: shown("NODE\n\na")},
		{Command: "weir ring", Line: 13},
		{Command: "curl -i host", Line: 17},
		{Command: "curl -i host", Line: 21},
		{Command: "curl -i host", Line: 21, Output: shown("HTTP/1.1 429")},
		{Command: "> wait", Line: 25, Output: shown("whole")},
	}
	if got := Steps(document, []string{"weir", "curl"}); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}
