package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// checkPackages looks at what is in the packages of a version, in the directory that they were built in, and at what the deb installs.
func checkPackages(t *testing.T, dpkg, dir, version, installed string) {
	t.Helper()
	deb := filepath.Join(dir, "weir.deb")
	output := func(args ...string) string { t.Helper(); return mustRun(t, "", nil, args...) }
	contents := output(dpkg, "--contents", deb)
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
		"/usr/share/zsh/vendor-completions/_weir":     "-rw-r--r--",
	} {
		if !regexp.MustCompile(`(?m)^` + mode + ` root/root .* \.` + regexp.QuoteMeta(path) + `$`).MatchString(contents) {
			t.Errorf("the deb has no %s of root with mode %s", path, mode)
		}
	}
	if conffiles := output(dpkg, "--info", deb, "conffiles"); conffiles != "/etc/weir/weir.yaml\n" {
		t.Errorf("conffiles %q, want /etc/weir/weir.yaml", conffiles)
	}
	if got := output(dpkg, "--field", deb, "Version"); got != version+"\n" {
		t.Errorf("version %q", got)
	}
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		if text := output(dpkg, "--info", deb, script); !strings.HasPrefix(text, "#!/bin/sh\n") {
			t.Errorf("%s is %q", script, text)
		}
	}
	if rpm, err := os.ReadFile(filepath.Join(dir, "weir.rpm")); err != nil || !bytes.HasPrefix(rpm, []byte{0xed, 0xab, 0xee, 0xdb}) {
		t.Errorf("the rpm is none: %v", err)
	}

	if got := output(filepath.Join(installed, "usr/bin/weir"), "version"); !strings.HasPrefix(got, "weir v"+version+" (") {
		t.Errorf("weir version prints %q", got)
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
	mustRun(t, "", nil, findProgram(t, "systemd-sysusers"), "--root="+installed, "weir.conf")
	passwd, err := os.ReadFile(filepath.Join(installed, "etc/passwd"))
	if want := ":/var/lib/weir:"; err != nil || !strings.HasPrefix(string(passwd), "weir:") || !strings.Contains(string(passwd), want) {
		t.Errorf("passwd is %q, %v: want the user weir with the home %s", passwd, err, want)
	}
	fmt.Fprintln(t.Output(), strings.TrimSpace(string(passwd)))
}
