package install

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/pageplayer"
	"github.com/weirlimit/weir/test/process"
)

// Versions of the packages: the one that is installed, and the one that replaces it.
const (
	olderPackage = "1.2.2"
	newerPackage = packagedVersion
)

// packaging is how packages of a format are installed or replaced, and removed.
type packaging struct {
	install, remove []string
	kept            string // what is left of /etc/weir/weir.yaml, if it was changed
	zsh             string // where the zsh of a system with such packages looks for completions, in addition to Debian's
}

var packagings = map[string]packaging{
	"deb": {[]string{"dpkg", "--install"}, []string{"dpkg", "--remove", "weir"}, "/etc/weir/weir.yaml", ""},
	// This rpm is Debian's. Its database knows nothing of what Debian's own packages provide, such as /bin/sh.
	"rpm": {
		[]string{"rpm", "--upgrade", "--nodeps", "--force-debian"}, []string{"rpm", "--erase", "--nodeps", "--force-debian", "weir"},
		"/etc/weir/weir.yaml.rpmsave", "/usr/share/zsh/site-functions",
	},
}

// TestPackages installs, replaces and removes the packages on a machine with a systemd that runs, as docs/install.md has it.
func TestPackages(t *testing.T) {
	testform.NotInBrief(t)
	dist := t.TempDir()
	buildPackages(t, dist)
	for format, p := range packagings {
		t.Run(format, func(t *testing.T) {
			m := newMachine(t)
			older, newer := m.put(filepath.Join(dist, "weir-"+olderPackage+"."+format)), m.put(filepath.Join(dist, "weir-"+newerPackage+"."+format))
			m.run(append(p.install, older)...)
			checkInstalled(m, p.zsh)
			serve(m)
			reload(m)
			replace(m, append(p.install, newer))
			watch(m)
			followRunbooks(m)
			m.run(p.remove...)
			checkRemoved(m, p.kept)
			m.run(append(p.install, newer)...)
			m.sh("[ -e /etc/weir/weir.yaml.rpmsave ] && mv /etc/weir/weir.yaml.rpmsave /etc/weir/weir.yaml; systemctl start weir")
			m.wants(allowed("alice"), "denied") // its counts were kept
		})
	}
}

// buildPackages builds both versions of all packages, as weir-VERSION.FORMAT.
func buildPackages(t *testing.T, dist string) {
	t.Helper()
	for _, version := range []string{olderPackage, newerPackage} {
		args := []string{"go", "run", ".", version, dist}
		if version != olderPackage {
			args = append(args, "deb", "rpm") // completions and pages are there
		}
		output(t, "../buildpackages", args...)
		for format := range packagings {
			name := filepath.Join(dist, "weir")
			if err := os.Rename(name+"."+format, name+"-"+version+"."+format); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// checkInstalled: the package has made its user and directories, and has started nothing. Manual and shells know it.
func checkInstalled(m *machine, zsh string) {
	m.t.Helper()
	m.wants("getent passwd weir | cut -d: -f1,6,7", "weir:/var/lib/weir:/usr/sbin/nologin")
	m.wants("stat -c '%n %U:%G %a' /etc/weir /var/lib/weir", "/etc/weir root:weir 750\n/var/lib/weir weir:weir 700")
	m.wants("systemctl is-enabled weir", "disabled")
	m.wants("systemctl is-active weir", "inactive")
	m.wants("setpriv --reuid weir --regid weir --init-groups weir config check /etc/weir/weir.yaml >/dev/null && echo read", "read")
	for _, page := range []string{"weir", "weir-serve", "weir-rules-apply"} {
		m.wants("man --pager=cat "+page+" 2>&1 | head -1 | cut -d' ' -f1", strings.ToUpper(page)+"(1)")
	}
	m.wants(`bash -c '. /usr/share/bash-completion/bash_completion
		_completion_loader weir
		COMP_WORDS=(weir healt) COMP_CWORD=1 COMP_LINE="weir healt" COMP_POINT=10 COMP_TYPE=9
		$(complete -p weir | sed "s/.* -F \([^ ]*\) .*/\1/") weir healt weir 2>/dev/null
		echo "${COMPREPLY[0]%% *}"'`, "healthcheck")
	m.wants("zsh -c 'fpath+=("+zsh+"); autoload -Uz compinit && compinit && print $_comps[weir]'", "_weir")
	m.wants(`fish -c 'complete --do-complete "weir healt"' | cut -f1`, "healthcheck")
}

// rulesOf is a command that writes rules with that limit per user.
func rulesOf(limit int) string {
	return fmt.Sprintf(`mkdir -p /etc/weir/rules && printf 'domain: shop\nrules:\n- {id: posts, per: [user], limits: [{limit: %d, window: 1000h}]}\n' >/etc/weir/rules/shop.yaml`, limit)
}

// allowed is a command that asks for one token, and prints "allowed" or "denied".
func allowed(user string) string {
	return "weir check --domain shop user=" + user + " | head -1 | cut -d' ' -f1"
}

// serve: a node that is configured starts with the machine, as its user, and systemctl returns when it answers.
func serve(m *machine) {
	m.t.Helper()
	m.sh(rulesOf(2))
	m.sh("echo 'rules: /etc/weir/rules' >>/etc/weir/weir.yaml")
	m.sh("systemctl enable --now weir")
	m.wants(allowed("alice"), "allowed")
	m.wants("systemctl is-enabled weir; systemctl is-active weir", "enabled\nactive")
	m.wants("stat -c %U /proc/$(systemctl show --value -p MainPID weir)", "weir")
	m.wants("systemctl show --value -p StatusText weir | cut -d' ' -f1-4", "serving gRPC at 127.0.0.1:9090")
	m.wants(allowed("alice"), "allowed")
	m.wants(allowed("alice"), "denied")
}

// reload: systemctl reload returns when changed rules are in force.
func reload(m *machine) {
	m.t.Helper()
	pid := m.sh("systemctl show --value -p MainPID weir")
	m.sh(rulesOf(3))
	m.sh("systemctl reload weir")
	m.wants(allowed("alice"), "allowed")
	m.wants(allowed("alice"), "denied")
	m.wants("systemctl show --value -p MainPID weir", pid)
}

// replace: a newer package neither restarts the node nor changes what the operator has written. A restart drains: the counts stay.
func replace(m *machine, install []string) {
	m.t.Helper()
	pid, config := m.sh("systemctl show --value -p MainPID weir"), m.sh("cat /etc/weir/weir.yaml")
	m.run(install...)
	m.wants("systemctl show --value -p MainPID weir", pid)
	m.wants("systemctl is-enabled weir; systemctl show --value -p NeedDaemonReload weir", "enabled\nno")
	m.wants("cat /etc/weir/weir.yaml", config)
	m.wants("stat -c '%n %U:%G %a' /etc/weir /var/lib/weir", "/etc/weir root:weir 750\n/var/lib/weir weir:weir 700")
	m.wants("weir version | cut -d' ' -f2", "v"+newerPackage)
	m.wants("weir nodes --json | grep -c v"+olderPackage, "1")
	m.sh("systemctl restart weir")
	m.wants("weir nodes --json | grep -c v"+newerPackage, "1")
	m.wants("journalctl --no-pager -u weir | grep -c 'counters written'", "1")
	m.wants(allowed("alice"), "denied")
}

// watch: systemd starts a node again that answers its watchdog no longer. Its time is shortened with a drop-in, as an operator changes
// the unit.
func watch(m *machine) {
	m.t.Helper()
	m.sh(`mkdir -p /etc/systemd/system/weir.service.d && printf '[Service]\nWatchdogSec=10s\n' >/etc/systemd/system/weir.service.d/time.conf`)
	m.sh("systemctl daemon-reload && systemctl restart weir")
	pid := m.sh("systemctl show --value -p MainPID weir")
	m.sh("kill -STOP " + pid)
	process.Await(m.t, process.Patience, func() error {
		state := m.try("sh", "-c", "systemctl is-active weir; systemctl show --value -p MainPID weir; systemctl show --value -p NRestarts weir")
		if fields := strings.Fields(state); len(fields) != 3 || fields[0] != "active" || fields[1] == pid || fields[2] == "0" {
			return errors.New(state)
		}
		return nil
	})
	m.wants("journalctl --no-pager -u weir | grep -o 'Watchdog timeout' | sort -u", "Watchdog timeout")
	m.wants(allowed("bob"), "allowed")
}

// followRunbooks runs what the runbooks of alerts say to look at on a node's machine.
func followRunbooks(m *machine) {
	m.t.Helper()
	m.sh("chronyd -x") // it leaves the clock alone; it has no servers here
	m.sh("weir certs init --dir /certs --node weir-1")
	here := strings.NewReplacer("FILE", "/certs/node-weir-1.crt", "DIR", "/var/lib/weir")
	want := map[string]string{"chronyc": "Leap status", "openssl": "notAfter=", "df": "Mounted on", "journalctl": "Started weir.service"}
	for command := range machineCommands(m.t) {
		program, _, _ := strings.Cut(command, " ")
		if out := m.run("sh", "-c", here.Replace(command)); want[program] == "" || !strings.Contains(out, want[program]) {
			m.t.Errorf("%s prints %q, want %q in it", command, out, want[program])
		}
		delete(want, program)
	}
	if len(want) > 0 {
		m.t.Errorf("no runbook has commands of %v", want)
	}
}

// machineCommands are all commands of runbooks that test/e2e does not run.
func machineCommands(t *testing.T) map[string]bool {
	t.Helper()
	pages, err := filepath.Glob("../../docs/operations/alerts/*.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := map[string]bool{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if program, _, _ := strings.Cut(line, " "); slices.Contains(pageplayer.MachinePrograms, program) {
				commands[strings.TrimSpace(line)] = true
			}
		}
	}
	return commands
}

// checkRemoved: the node has stopped, and its program and unit are gone. What is the operator's is there.
func checkRemoved(m *machine, kept string) {
	m.t.Helper()
	m.wants("pgrep -u weir || echo none", "none")
	m.wants("ls /usr/bin/weir /usr/lib/systemd/system/weir.service /etc/systemd/system/multi-user.target.wants/weir.service 2>/dev/null || true", "")
	m.wants("grep -c '^rules: /etc/weir/rules$' "+kept, "1")
	m.wants("stat -c '%n %U:%G %a' /var/lib/weir; ls -A /var/lib/weir | grep -c .", "/var/lib/weir weir:weir 700\n1")
	m.wants("getent passwd weir | cut -d: -f1", "weir")
}
