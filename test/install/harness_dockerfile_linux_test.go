package install

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// packagedVersion is the version that images are built of.
const packagedVersion = "1.2.3"

// output runs a command and returns what it prints.
func output(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

// image is what a Dockerfile of two stages leads to: the file system of the last one, and how it is run.
type image struct {
	root        string // directory
	env         []string
	uid, gid    uint32
	entrypoint  []string
	cmd         []string
	healthcheck []string
}

// known are the instructions without which the image is the same here.
var known = regexp.MustCompile(`^(LABEL|VOLUME|EXPOSE|STOPSIGNAL|ARG)$`)

// builder runs a Dockerfile's instructions without an engine. The stage build runs in a copy of the repository on this machine, whose
// Go stands for that of its base image; the last one is on scratch, and has what is copied there only.
type builder struct {
	src     string // what /src is in the stage build
	image   image
	scratch bool
}

// buildImage builds the image of a Dockerfile. It refuses instructions that it does not know: they would be without effect.
func buildImage(dockerfile, src, root string) (image, error) {
	text, err := os.ReadFile(dockerfile)
	if err != nil {
		return image{}, err
	}
	b := &builder{src: src, image: image{root: root}}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, rest, _ := strings.Cut(line, " ")
		if err := b.instruct(name, strings.TrimSpace(rest)); err != nil {
			return image{}, fmt.Errorf("%s: %w", line, err)
		}
	}
	return b.image, nil
}

func (b *builder) instruct(name, rest string) (err error) {
	switch {
	case known.MatchString(name):
	case name == "FROM" && rest == "scratch":
		b.scratch = true
	case name == "FROM" && strings.HasPrefix(rest, "golang:") && strings.HasSuffix(rest, " AS build"):
	case !b.scratch && name == "WORKDIR" && rest == "/src":
	case !b.scratch && name == "COPY" && rest == ". .":
	case !b.scratch && name == "RUN":
		cmd := exec.Command("sh", "-ec", rest)
		cmd.Dir, cmd.Env = b.src, append(os.Environ(), "VERSION=v"+packagedVersion)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	case b.scratch && name == "COPY":
		return b.copyFile(strings.Fields(rest))
	case b.scratch && name == "ENV":
		b.image.env = append(b.image.env, rest)
	case b.scratch && name == "USER":
		b.image.uid, b.image.gid, err = owner(rest)
		return err
	case name == "ENTRYPOINT":
		return json.Unmarshal([]byte(rest), &b.image.entrypoint)
	case name == "CMD":
		return json.Unmarshal([]byte(rest), &b.image.cmd)
	case name == "HEALTHCHECK":
		_, command, _ := strings.Cut(rest, " CMD ")
		return json.Unmarshal([]byte(command), &b.image.healthcheck)
	default:
		return fmt.Errorf("the test does not know this")
	}
	return nil
}

// copyFile copies a file or an empty directory from the stage build: --from=build [--chown=UID:GID] SOURCE DESTINATION.
func (b *builder) copyFile(args []string) error {
	uid, gid := uint32(0), uint32(0)
	for ; len(args) > 2; args = args[1:] {
		if chown, found := strings.CutPrefix(args[0], "--chown="); found {
			var err error
			if uid, gid, err = owner(chown); err != nil {
				return err
			}
		} else if args[0] != "--from=build" {
			return fmt.Errorf("%s: the test does not know this", args[0])
		}
	}
	source, target := args[0], filepath.Join(b.image.root, args[1])
	if inner, found := strings.CutPrefix(source, "/src/"); found {
		source = filepath.Join(b.src, inner)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	if out, err := exec.Command("cp", "-rL", source, target).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return os.Chown(target, int(uid), int(gid))
}

// owner parses UID:GID. Names would need an /etc/passwd, which there is none of.
func owner(text string) (uid, gid uint32, err error) {
	user, group, _ := strings.Cut(text, ":")
	u, err := strconv.ParseUint(user, 10, 32)
	if err != nil {
		return 0, 0, err
	}
	g, err := strconv.ParseUint(group, 10, 32)
	return uint32(u), uint32(g), err
}
