package node

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/etcd"
	"github.com/weirlimit/weir/internal/access"
	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/rules"
)

// Severity says how bad a Finding is.
type Severity string

// The severities. What is an error keeps a node from starting or from its work.
const (
	Good     Severity = "ok"
	Doubtful Severity = "warning"
	Bad      Severity = "error"
)

// Finding is what Examine has found of one thing.
type Finding struct {
	Severity Severity `json:"severity"`
	Subject  string   `json:"subject"` // the option, or what it stands for, such as "grpc" and "member b"
	Text     string   `json:"text"`
	Advice   string   `json:"advice,omitempty"` // what to do about it; empty if there is nothing to do
}

// advices say what to do about findings that do not say it themselves, by the first word of their subject.
var advices = map[string]string{
	"options": optionAdvice, "grpc": portAdvice, "http": portAdvice, "admin": portAdvice, "pprof": portAdvice, "etcd-listen": portAdvice,
	"tls-cert": "make certificates with weir certs node ID, in the place of these", "tls-key": "make certificates with weir certs node ID, in the place of these",
	"tls-ca": "use the ca.crt that weir certs init has made for this cluster", "tls-cert,": "make certificates with weir certs node ID, in the place of these",
	"rls-cert": serviceAdvice, "rls-cert,": serviceAdvice, "rls-ca": serviceAdvice, "rls-key": "let only the user of the node read it",
	"xds-cert": serviceAdvice, "xds-cert,": serviceAdvice, "xds-ca": serviceAdvice, "xds-key": "let only the user of the node read it",
	"xds-server": "see whether it runs, is reached at --xds-server, and has rules for --xds-node-id",
	"etcd-cert":  "put a new certificate in its place", "etcd-key": "let only the user of the node read it", "etcd-password-file": "let only the user of the node read it",
	"tokens": "make the file with weir tokens create, and let only the user of the node read it", "data-dir": "let only the user of the node use it (chmod go= DIR)",
	"etcd":    "see whether etcd runs and is reached at --etcd, and what --etcd-user may do",
	"cluster": "give all nodes of the cluster TLS, or none", "node": "see whether it runs and is reached at its --advertise; take out one that is dead: weir nodes remove ID",
	"nodes": "ask the --admin port of a node, as a client with the role admin", "health": "see docs/failures.md, docs/operations/alerts and the log of the node", "rules": "weir rules lint -f FILE checks files; weir rules apply -f FILE adds rules",
}

const optionAdvice = "mend the option; weir config check FILE shows what a file sets"

const serviceAdvice = "put a file in its place that can be used: a certificate, its key and the CA, as the gateway has made them"

const portAdvice = "end the process that listens there (ss -ltnp), or name another address"

// Advise adds what to do to findings that do not say it.
func Advise(findings []Finding) []Finding {
	for i := range findings {
		f := &findings[i]
		if first, _, _ := strings.Cut(f.Subject, " "); f.Severity != Good && f.Advice == "" {
			f.Advice = cmp.Or(advices[first], optionAdvice)
		}
	}
	return findings
}

// Bounds of an examination.
const (
	examinedAtOnce  = 16                  // members
	endsSoon        = 30 * 24 * time.Hour // certificates are a warning
	mayReadOfOthers = 0o077               // of the mode of a secret
)

// Examine looks at all that a node with these options needs: files, ports, etcd, rules and the other members. It changes
// nothing, and listens at the ports for a moment only. The options are valid.
func Examine(ctx context.Context, opts Options) []Finding {
	d := &doctor{node: &node{opts: opts.WithDefaults(), log: slog.New(slog.DiscardHandler), metrics: prometheus.NewRegistry()}, taken: make(map[string]string)}
	defer d.node.close()
	d.ports(ctx)
	d.certificate()
	d.certificateForEnvoy()
	d.secrets()
	if d.openEtcd(ctx) {
		d.cluster(ctx)
	}
	d.examineRules(ctx)
	d.takenPorts()
	d.system()
	return Advise(d.findings)
}

// doctor examines a node, of which it makes as much as it can without changing anything.
type doctor struct {
	node  *node
	taken map[string]string // addresses in use, by their option
	runs  bool              // the node with these options runs

	mu       sync.Mutex
	findings []Finding // guarded by mu
}

func (d *doctor) add(severity Severity, subject, format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.findings = append(d.findings, Finding{Severity: severity, Subject: subject, Text: fmt.Sprintf(format, args...)})
}

// advise is add with what to do.
func (d *doctor) advise(severity Severity, subject, advice, format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.findings = append(d.findings, Finding{severity, subject, fmt.Sprintf(format, args...), advice})
}

// check adds an error, if there is one, and otherwise what is good.
func (d *doctor) check(err error, subject, format string, args ...any) bool {
	if err != nil {
		d.add(Bad, subject, "%v", err)
		return false
	}
	d.add(Good, subject, format, args...)
	return true
}

// ports looks at which ports are free. Whether it is this node that uses the others is known later.
func (d *doctor) ports(ctx context.Context) {
	o := d.node.opts
	ports := []struct{ option, address string }{{"grpc", o.GRPC}, {"http", o.HTTP}, {"admin", o.Admin}, {"rls-listen", o.RLSListen}, {"pprof", o.Pprof}}
	if len(o.Etcd) == 0 {
		ports = append(ports, struct{ option, address string }{"etcd-listen", o.EtcdListen})
	}
	for _, p := range ports {
		if p.address == "" {
			continue
		}
		l, err := d.node.network.listen(ctx, p.address)
		if errors.Is(err, syscall.EADDRINUSE) {
			d.taken[p.option] = p.address
			continue
		}
		if d.check(err, p.option, "%s is free", p.address) {
			_ = l.Close() // nothing has connected
		}
	}
}

// takenPorts says of each port in use whether this node may be its user.
func (d *doctor) takenPorts() {
	for _, option := range []string{"grpc", "http", "admin", "rls-listen", "pprof", "etcd-listen"} {
		address, taken := d.taken[option]
		switch {
		case !taken:
		case d.runs:
			d.add(Good, option, "%s is in use, and this node runs", address)
		default:
			d.add(Bad, option, "%s is in use, and not by this node", address)
		}
	}
}

// certificate looks at the files of TLS.
func (d *doctor) certificate() {
	o := d.node.opts
	if o.TLSCert == "" {
		if d.node.isExposed() {
			d.add(Doubtful, "tls-cert", "this node serves beyond loopback without TLS (--insecure)")
		} else {
			d.add(Good, "tls-cert", "none: this node serves on loopback only")
		}
		return
	}
	var err error
	self := certs.Name{Cluster: o.Cluster, Kind: certs.Node, ID: o.ID}
	if d.node.certs, err = certs.Open(certs.Files{Cert: o.TLSCert, Key: o.TLSKey, CA: o.TLSCA}, self, d.node.log); err != nil {
		d.node.certs = nil
		option, rest, found := cutOption(err)
		if !found {
			option, rest = "tls-cert", err.Error()
		}
		d.add(Bad, option, "%s", rest)
		return
	}
	d.ends("tls-cert", fmt.Sprintf("%s names %v and", o.TLSCert, self), d.node.certs.Expires())
	d.ends("tls-ca", o.TLSCA, d.node.certs.AuthorityExpires())
}

// certificateForEnvoy looks at the files of the port for Envoy.
func (d *doctor) certificateForEnvoy() {
	o := d.node.opts
	if o.RLSListen == "" {
		return
	}
	service, err := certs.OpenEnvoyPort(certs.Files{Cert: o.RLSCert, Key: o.RLSKey, CA: o.RLSCA}, o.RLSClientName, d.node.log)
	if option, rest, found := cutOption(err); found {
		d.add(Bad, option, "%s", rest)
		return
	}
	if err != nil {
		d.add(Bad, "rls-cert", "%v", err)
		return
	}
	ends, _ := service.State() // it was read just now
	d.ends("rls-cert", o.RLSCert, ends)
	d.fileEnds("rls-ca", o.RLSCA, certs.AuthoritiesExpire)
	if o.RLSCA == "" && exposed(o.RLSListen) {
		d.advise(Doubtful, "rls-listen", "name the CA of the callers with --rls-ca", "everybody who reaches %s may use up limits: there is no --rls-ca", o.RLSListen)
	}
}

// fileEnds says how long the certificates in a file are still valid, if there is a file.
func (d *doctor) fileEnds(option, path string, read func(path string) (time.Time, error)) {
	if path == "" {
		return
	}
	ends, err := read(path)
	if err != nil {
		d.add(Bad, option, "%v", err)
		return
	}
	d.ends(option, path, ends)
}

// cutOption cuts the name of an option of TLS, or of two, off an error that begins with it.
func cutOption(err error) (option, rest string, found bool) {
	if err == nil {
		return "", "", false
	}
	for _, of := range []string{"tls", "rls", "xds"} {
		for _, option := range []string{of + "-cert, " + of + "-key", of + "-cert", of + "-key", of + "-ca"} {
			if rest, found = strings.CutPrefix(err.Error(), option+": "); found {
				return option, rest, true
			}
		}
	}
	return "", "", false
}

// ends says how long a certificate is still valid.
func (d *doctor) ends(subject, what string, ends time.Time) {
	f := Ends(subject, what, ends)
	d.add(f.Severity, subject, "%s", f.Text)
}

// Ends returns the finding of a certificate that is valid until an instant.
func Ends(subject, what string, ends time.Time) Finding {
	left := time.Until(ends)
	days, at := int(left/(24*time.Hour)), ends.UTC().Format(time.RFC3339)
	switch {
	case left <= 0:
		return Finding{Bad, subject, fmt.Sprintf("%s has ended at %s", what, at), "put a new one in its place"}
	case left < endsSoon:
		return Finding{Doubtful, subject, fmt.Sprintf("%s ends in %d days, at %s", what, days, at), "put a new one in its place"}
	}
	return Finding{Severity: Good, Subject: subject, Text: fmt.Sprintf("%s ends in %d days, at %s", what, days, at)}
}

// secrets looks at what no other user of this machine may read, and at the file of tokens.
func (d *doctor) secrets() {
	o := d.node.opts
	for _, secret := range []struct{ option, path string }{
		{"tls-key", o.TLSKey}, {"rls-key", o.RLSKey}, {"xds-key", o.XDSKey}, {"etcd-key", o.EtcdKey}, {"etcd-password-file", o.EtcdPasswordFile}, {"tokens", o.Tokens}, {"data-dir", o.DataDir},
	} {
		info, err := os.Stat(secret.path)
		switch {
		case secret.path == "":
		case secret.option == "data-dir" && errors.Is(err, fs.ErrNotExist):
			d.add(Good, secret.option, "%s is made when the node starts", secret.path)
		case err != nil:
			d.add(Bad, secret.option, "%v", err)
		case info.Mode().Perm()&mayReadOfOthers != 0:
			d.add(Doubtful, secret.option, "%s has the mode %#o: other users of this machine can use it; take their rights away (chmod go= %s)", secret.path, info.Mode().Perm(), secret.path)
		default:
			d.add(Good, secret.option, "%s is for its owner only", secret.path)
		}
	}
	if o.Tokens != "" {
		tokens := new(access.Tokens)
		_, err := openTokenFile(o.Tokens, tokens, d.node.log)
		d.check(err, "tokens", "%s can be read", o.Tokens)
	}
	if o.EtcdCert != "" {
		pair, err := tls.LoadX509KeyPair(o.EtcdCert, o.EtcdKey)
		if err != nil {
			d.add(Bad, "etcd-cert", "%v", err)
			return
		}
		d.ends("etcd-cert", o.EtcdCert, pair.Leaf.NotAfter)
	}
}

// openEtcd connects to etcd, and reports whether it answers this node, if only reads. The one in a node's process answers if that runs.
func (d *doctor) openEtcd(ctx context.Context) bool {
	n := d.node
	if len(n.opts.Etcd) == 0 {
		if d.taken["etcd-listen"] == "" {
			d.add(Good, "etcd", "in the process of this node, which does not run")
			return false
		}
		host, _, err := net.SplitHostPort(n.opts.EtcdListen)
		n.opts.Etcd = []string{n.opts.EtcdListen}
		if err == nil && n.certs != nil && !isLoopback(host) {
			n.opts.Etcd = []string{httpsScheme + n.opts.EtcdListen}
		}
	}
	cfg := etcd.Config{Endpoints: n.opts.etcdEndpoints(), Cluster: n.opts.Cluster, Logger: n.log}
	err := n.secureEtcd(&cfg)
	if err == nil {
		n.registry, err = etcd.Open(ctx, cfg)
	}
	if err != nil {
		d.add(Bad, "etcd", "%v", err)
		return false
	}
	n.closers = append(n.closers, n.registry.Close)
	err = n.registry.MayWrite(ctx)
	if etcd.IsAlarm(err) {
		d.advise(Bad, "etcd", "see its alarms below; etcdctl alarm list lists them too", "%v", err)
	} else if !d.check(err, "etcd", "%s answers, and this node may write to it", n.registry.Where()) {
		return false
	}
	d.inspectEtcd(ctx)
	return true
}

// cluster looks at the other nodes.
func (d *doctor) cluster(ctx context.Context) {
	n := d.node
	params, found, err := n.registry.ReadParams(ctx)
	if err != nil || !found {
		d.check(err, "cluster", "there is no cluster %q yet: this node founds it", n.opts.Cluster)
		return
	}
	nodes, err := n.registry.Nodes(ctx)
	if err != nil {
		d.add(Bad, "cluster", "%v", err)
		return
	}
	d.check(n.refuseMixed(nodes), "cluster", "%q has %d nodes", n.opts.Cluster, len(nodes))
	var running []Running
	for _, n := range nodes {
		running = append(running, Running{n.ID, n.Version, n.RulesHash})
	}
	d.findings = append(d.findings, CompareNodes(running)...)
	g := cluster.NewGreeter(cluster.Identity{Cluster: fingerprint(params), ID: n.opts.ID}, func() int64 { return time.Now().UnixNano() }, n.log)
	var all errgroup.Group
	all.SetLimit(examinedAtOnce)
	for _, other := range nodes {
		all.Go(func() error {
			d.member(ctx, g, other)
			return nil
		})
	}
	_ = all.Wait() // no function fails
}

// member asks a node who it is, and for the time.
func (d *doctor) member(ctx context.Context, g *cluster.Greeter, other cluster.Node) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	ahead, err := g.Knock(ctx, d.node.dial, other.Member())
	subject := "node " + other.ID
	far := cluster.ClockDifference{ID: other.ID, Ahead: ahead}
	switch {
	case err != nil && other.ID == d.node.opts.ID:
		d.add(Doubtful, subject, "this node is registered at %s and does not answer there: %v", other.Address, err)
	case certs.IsRefusal(err, other.ID):
		d.advise(Bad, subject, "see that both have certificates that weir certs has made with the ca.crt of this cluster, and that have not expired",
			"answers at %s, and one of the two does not accept the certificate of the other: %v", other.Address, err)
	case err != nil:
		d.add(Bad, subject, "does not answer at %s: %v", other.Address, err)
	case far.TooFar():
		d.add(Bad, subject, "answers at %s; %s, and %v are allowed: set the wrong clock, as with NTP", other.Address, formatClock(far), cluster.MaxClockDifference)
	default:
		d.add(Good, subject, "answers at %s, and its clock agrees with this machine's", other.Address)
	}
	if err == nil && other.ID == d.node.opts.ID {
		d.mu.Lock()
		d.runs = true
		d.mu.Unlock()
	}
}

// examineRules reads the rules, of files or of the cluster.
func (d *doctor) examineRules(ctx context.Context) {
	n := d.node
	var err error
	switch {
	case n.opts.Rules != "":
		err = n.loadRules(ctx)
	case n.opts.XDSServer != "":
		d.examineXDS(ctx)
		return
	case n.registry != nil:
		err = n.openStore(ctx)
	default:
		return // they are in an etcd that does not answer
	}
	if refused, ok := errors.AsType[*rules.LoadError](err); ok {
		for _, p := range refused.Problems {
			d.add(Bad, "rules", "%v", p)
		}
		return
	}
	if d.check(err, "rules", "can be read") {
		if count := n.rules.Set().Len(); count == 0 {
			d.add(Doubtful, "rules", "there are none: everything is allowed")
		}
	}
}

// Running is what a node runs: its id, its version and the hash of its rules, which are "" if they are not known.
type Running struct{ ID, Version, RulesHash string }

// CompareNodes says which nodes run other versions or rules than others.
func CompareNodes(nodes []Running) (all []Finding) {
	versions, hashes := make(map[string][]string), make(map[string][]string)
	for _, n := range nodes {
		versions[n.Version] = append(versions[n.Version], n.ID)
		hashes[n.RulesHash] = append(hashes[n.RulesHash], n.ID)
	}
	delete(versions, "")
	delete(hashes, "")
	if len(versions) > 1 {
		all = append(all, Finding{Doubtful, "versions", "the nodes run " + listGroups(versions), "end the upgrade: restart the nodes of the older version with the newer one"})
	}
	if len(hashes) > 1 {
		all = append(all, Finding{Doubtful, "rules", "the nodes have different rules: " + listGroups(hashes), "give all nodes the same files in --rules, or none; if a change has just been made, ask again"})
	}
	return all
}

// listGroups lists what nodes have, and which ones.
func listGroups(groups map[string][]string) string {
	var all []string
	for value, ids := range groups {
		all = append(all, fmt.Sprintf("%s (%s)", value, strings.Join(ids, ", ")))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
