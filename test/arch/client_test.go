package arch

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	// go test runs the test again when these change.
	_ "github.com/weirlimit/weir/client/grpclimit"
)

// clientModules are the modules, and the packages of this one, that a program compiles when it imports
// the Go client and its middleware for gRPC. A new one is a cost for every user.
var clientModules = map[string][]string{
	"client":           {"api/weir/v1", "client"},
	"client/grpclimit": {"api/weir/v1", "client", "client/grpclimit", "client/internal/middleware", "internal/clientip", "internal/headers"},
}

// otherModules are the modules of others that the client may compile.
var otherModules = []string{
	"github.com/dunglas/httpsfv", // header fields, in the middlewares only
	"golang.org/x/net", "golang.org/x/sys", "golang.org/x/text",
	"google.golang.org/genproto/googleapis/rpc", "google.golang.org/grpc", "google.golang.org/protobuf",
}

func TestClientImports(t *testing.T) {
	for path, want := range clientModules {
		t.Run(path, func(t *testing.T) {
			list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}} {{$.ImportPath}}{{end}}", "./"+path)
			list.Dir = "../.."
			out, err := list.Output()
			if err != nil {
				t.Fatal(err)
			}
			var own []string
			for line := range strings.Lines(string(out)) {
				of, name, _ := strings.Cut(strings.TrimSpace(line), " ")
				if of == module {
					own = append(own, strings.TrimPrefix(name, module+"/"))
				} else if !slices.Contains(otherModules, of) {
					t.Errorf("%s imports %s, of a module that clients should not need", path, name)
				}
			}
			slices.Sort(own)
			if !slices.Equal(own, want) {
				t.Errorf("%s compiles the packages %q of this module, not %q", path, own, want)
			}
		})
	}
}
