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
	if got, want := Unplayed(document, []string{"weir", "curl"}), []Step{{Command: "make bench", Line: 5}}; !reflect.DeepEqual(got, want) {
		t.Errorf("left out are\n%+v\nwant\n%+v", got, want)
	}
}

// Each line of a block of commands that is no step is among those left out, with its number.
func TestUnplayed(t *testing.T) {
	t.Parallel()
	for document, want := range map[string][]Step{
		"    wier nodes\n": {{Command: "wier nodes", Line: 1}},
		"1. Do:\n\n       wier nodes\n       weirs\n":          {{Command: "wier nodes", Line: 3}, {Command: "weirs", Line: 4}},
		"```sh\nwier nodes\n\n# why\nweir ring\n```\n":         {{Command: "wier nodes", Line: 2}},
		"- Do:\n\n  ```sh\n  weir ring\n  wier nodes\n  ```\n": {{Command: "wier nodes", Line: 5}},
		"```bash\nweir nodes\n```\n":                           {{Command: "weir nodes", Line: 2}},
		"```console\nweir nodes\n```\n":                        {{Command: "weir nodes", Line: 2}},
		"```console\n$ weir nodes\nwier\n```\n":                nil,
		"    wier nodes \\\n        --node x\n    weir ring\n": {{Command: "wier nodes     --node x", Line: 2}},
		"    weir nodes \\\n\nText.\n":                         {{Command: "weir nodes \\", Line: 2}},
		"```sh\nweir nodes \\\n```\n":                          {{Command: "weir nodes \\", Line: 3}},
		"<!-- rnu: weir nodes -->\n":                           {{Command: "<!-- rnu: weir nodes -->", Line: 1}},
		"   <!-- run: weir nodes -->\n":                        {{Command: "<!-- run: weir nodes -->", Line: 1}},
		"```sh\nweir nodes\n":                                  {{Command: "a block that does not end", Line: 3}},
		"```yaml\nweir nodes\n```\n\n```\nweir | nodes\n```\n": nil,
	} {
		if got := Unplayed(document, []string{"weir"}); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: left out are\n%+v\nwant\n%+v", document, got, want)
		}
	}
}
