package install

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/weirlimit/weir/test/process"
)

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

// TestPackages builds the packages, looks at what is in them, and runs what the deb installs by the unit that it installs.
func TestPackages(t *testing.T) {
	process.NotInBrief(t)
	dpkg := program(t, "dpkg-deb", "Debian")
	dir := t.TempDir()
	output(t, "../release", "go", "run", ".", packagedVersion, dir)
	deb := filepath.Join(dir, "weir.deb")

	contents := output(t, "", dpkg, "--contents", deb)
	for path, mode := range map[string]string{
		"/usr/bin/weir":                               "-rwxr-xr-x",
		"/usr/lib/systemd/system/weir.service":        "-rw-r--r--",
		"/usr/lib/sysusers.d/weir.conf":               "-rw-r--r--",
		"/usr/lib/tmpfiles.d/weir.conf":               "-rw-r--r--",
		"/etc/weir/":                                  "drwxr-xr-x",
		"/etc/weir/weir.yaml":                         "-rw-r--r--",
		"/usr/share/doc/weir/copyright":               "-rw-r--r--",
		"/usr/share/man/man1/weir-serve.1.gz":         "-rw-r--r--",
		"/usr/share/man/man1/weir-rules-apply.1.gz":   "-rw-r--r--",
		"/usr/share/bash-completion/completions/weir": "-rw-r--r--",
		"/usr/share/zsh/site-functions/_weir":         "-rw-r--r--",
	} {
		if !regexp.MustCompile(`(?m)^` + mode + ` root/root .* \.` + regexp.QuoteMeta(path) + `$`).MatchString(contents) {
			t.Errorf("the deb has no %s of root with mode %s", path, mode)
		}
	}
	if conffiles := output(t, "", dpkg, "--info", deb, "conffiles"); conffiles != "/etc/weir/weir.yaml\n" {
		t.Errorf("conffiles %q, want /etc/weir/weir.yaml", conffiles)
	}
	if version := output(t, "", dpkg, "--field", deb, "Version"); version != packagedVersion+"\n" {
		t.Errorf("version %q", version)
	}
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		if text := output(t, "", dpkg, "--info", deb, script); !strings.HasPrefix(text, "#!/bin/sh\n") {
			t.Errorf("%s is %q", script, text)
		}
	}
	if rpm, err := os.ReadFile(filepath.Join(dir, "weir.rpm")); err != nil || !bytes.HasPrefix(rpm, []byte{0xed, 0xab, 0xee, 0xdb}) {
		t.Errorf("the rpm is none: %v", err)
	}

	installed := filepath.Join(dir, "installed")
	output(t, "", dpkg, "--extract", deb, installed)
	output(t, "", filepath.Join(installed, "usr/share/../bin/weir"), "config", "check", filepath.Join(installed, "etc/weir/weir.yaml"))
	if got := output(t, "", filepath.Join(installed, "usr/bin/weir"), "version"); !strings.HasPrefix(got, "weir v"+packagedVersion+" (") {
		t.Errorf("weir version prints %q", got)
	}
	unit, err := os.ReadFile(filepath.Join(installed, "usr/lib/systemd/system/weir.service"))
	if err != nil {
		t.Fatal(err)
	}
	start := regexp.MustCompile(`(?m)^ExecStart=(/\S+) serve (.*)$`).FindStringSubmatch(string(unit))
	if start == nil {
		t.Fatalf("no ExecStart in\n%s", unit)
	}
	args := strings.Fields(strings.ReplaceAll(" "+start[2], " /etc/", " "+installed+"/etc/"))
	n := process.How{Binary: installed + start[1]}.Start(t, args...)
	output(t, "", installed+start[1], "healthcheck", "--http", n.HTTP)
	n.Signal(syscall.SIGTERM)
	if code := n.Wait(process.Patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if out, err := exec.Command(installed+start[1], "healthcheck", "--http", n.HTTP).CombinedOutput(); err == nil || !strings.Contains(string(out), "refused") {
		t.Errorf("healthcheck of a node that has ended: %v, %s", err, out)
	}
	makesUser(t, installed)
}

// makesUser has systemd make the packaged user in an empty tree.
func makesUser(t *testing.T, installed string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Log("the user of the package is made by root only: not tried")
		return
	}
	sysusers := program(t, "systemd-sysusers", "Debian's package systemd")
	output(t, "", sysusers, "--root="+installed, "weir.conf")
	passwd, err := os.ReadFile(filepath.Join(installed, "etc/passwd"))
	if want := ":/var/lib/weir:"; err != nil || !strings.HasPrefix(string(passwd), "weir:") || !strings.Contains(string(passwd), want) {
		t.Errorf("passwd is %q, %v: want the user weir with the home %s", passwd, err, want)
	}
	fmt.Fprintln(t.Output(), strings.TrimSpace(string(passwd)))
}
