package uitest

import (
	_ "embed"
	"flag"
	"testing"

	"github.com/weirlimit/weir/test/process"
)

// axe finds what keeps people from using a page.
//
//go:embed axe/axe-4.14.1.min.js
var axe string

// screenshots says to write the pictures of the docs.
var screenshots = flag.Bool("screenshots", false, "write the pictures of docs/images")

// looks is where to write pictures of all pages that axe checks, to be looked at.
var looks = flag.String("looks", "", "write a picture of each page that is checked, light and dark, wide and narrow, to this directory")

func TestMain(m *testing.M) {
	flag.Parse()
	process.Main(m)
}
