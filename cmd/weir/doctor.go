package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/node"
)

func (a *app) doctorCommand() *cobra.Command {
	var asJSON bool
	var address, tokenFile string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what keeps a node from its work",
		Long: `Read the options of a node as "weir serve" does, from flags, the environment and --config,
and look at all that the node needs, one line for each finding:

  - the options, and whether the ports are free, or used by this node
  - the certificate, its key and the CA: whether they belong together and name this node, and the days that are left
  - the modes of files with secrets
  - etcd: whether it answers, and lets this node write; how fast a quorum of it answers, its members, their databases, and alarms
  - the rules
  - the other nodes: whether they answer at the addresses that they advertise, what time they have, and whether versions and rules differ
  - the machine: file descriptors, memory for --counter-memory, huge pages, and whether the clock is synchronized

With --node, or with $WEIR_NODE and no option of a node but those of TLS, it asks the node that runs there instead: its health, its certificate, the nodes that it knows, and whether options
that are to be the same on all of them are. Then
--tls-ca, --tls-cert, --tls-key, --token-file and their variables are those of a client with the role admin, and no other option
of a node is read.

Nothing is changed. A certificate that ends in less than 30 days is a warning. What is wrong comes with what to do about it.

The exit code is 0 if there is no error, 1 if there is one, and 2 if the command was given badly.`,
		Example: `  weir doctor --config /etc/weir/weir.yaml
  weir doctor --node 10.0.0.1:9090 --tls-ca ca.crt --tls-cert client-admin.crt --tls-key client-admin.key`,
		Args: noArgs,
	}
	addOptions(cmd.Flags())
	flags := cmd.Flags()
	flags.StringVar(&address, "node", "", "ask the node whose gRPC, or --admin, is at `HOST:PORT`; $WEIR_NODE sets it as well, unless there are options of a node")
	flags.StringVar(&tokenFile, "token-file", "", "`FILE` with a token of weir tokens create, for --node")
	flags.DurationVar(&timeout, "timeout", 10*time.Second, "take at most `DURATION`")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if timeout <= 0 {
			return usageError(cmd, "--timeout: %v is not above 0", timeout)
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		var findings []node.Finding
		if cmd.Flags().Changed("node") || a.env[variable("node")] != "" && !examinesOptions(cmd) {
			q := nodeFlags{node: address, timeout: timeout, tokenFile: tokenFile}
			a.locate(cmd, &q)
			if err := q.takeTLS(cmd); err != nil {
				return err
			}
			if err := a.secure(cmd, &q); err != nil {
				return &exitError{err: err, code: 2}
			}
			if err := q.checkAddress(); err != nil {
				return err
			}
			findings = q.examine(ctx)
		} else {
			if tokenFile != "" {
				return usageError(cmd, "--token-file: is for --node")
			}
			findings = a.examineOptions(ctx, cmd)
		}
		return a.printFindings(asJSON, node.Advise(findings))
	}
	return cmd
}

// examinesOptions reports whether a flag says what a node would run with, other than with which certificate a client asks.
func examinesOptions(cmd *cobra.Command) bool {
	return cmd.Flags().Changed("config") || slices.ContainsFunc(options(), func(o option) bool {
		return cmd.Flags().Changed(o.name) && o.name != "tls-ca" && o.name != "tls-cert" && o.name != "tls-key"
	})
}

// takeTLS takes the files of TLS from the options of a node, and refuses other options.
func (q *nodeFlags) takeTLS(cmd *cobra.Command) error {
	for _, o := range options() {
		f := cmd.Flags().Lookup(o.name)
		switch {
		case !f.Changed:
		case o.name == "tls-ca":
			q.files.CA = f.Value.String()
		case o.name == "tls-cert":
			q.files.Cert = f.Value.String()
		case o.name == "tls-key":
			q.files.Key = f.Value.String()
		default:
			return usageError(cmd, "--%s: cannot be combined with --node, which asks a node that runs", o.name)
		}
	}
	if cmd.Flags().Changed("config") {
		return usageError(cmd, "--config: cannot be combined with --node, which asks a node that runs")
	}
	return nil
}

// examineOptions examines the node that weir serve would run.
func (a *app) examineOptions(ctx context.Context, cmd *cobra.Command) (findings []node.Finding) {
	opts, values, err := readOptions(cmd.Flags(), a.env)
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			findings = append(findings, node.Finding{Severity: node.Bad, Subject: "options", Text: line})
		}
		return findings
	}
	findings = []node.Finding{{Severity: node.Good, Subject: "options", Text: count(len(values), "option") + " set"}}
	for _, name := range unknownVariables(a.env) {
		findings = append(findings, node.Finding{Severity: node.Doubtful, Subject: "options", Text: "unknown environment variable " + name})
	}
	return append(findings, node.Examine(ctx, opts)...)
}

// notReady says what to do about a node that answers and is not ready.
const notReady = "weir nodes names its state; a new node waits until members answer it, and weir drain --cancel ID ends a drain"

// examine asks a node that runs.
func (q *nodeFlags) examine(ctx context.Context) (findings []node.Finding) {
	add := func(severity node.Severity, subject, format string, args ...any) {
		findings = append(findings, node.Finding{Severity: severity, Subject: subject, Text: fmt.Sprintf(format, args...)})
	}
	var ends time.Time
	if q.secured != nil {
		q.secured.VerifyConnection = func(state tls.ConnectionState) error {
			ends = state.PeerCertificates[0].NotAfter // verified, so there is one
			return nil
		}
	}
	c, err := q.connect(q.node)
	if err != nil {
		add(node.Bad, "node", "%s: %v", q.where, err)
		return findings
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	health, err := c.Health(ctx)
	if err != nil {
		findings = append(findings, node.Finding{Severity: node.Bad, Subject: "node", Text: q.explain(err).Error(), Advice: "see whether it runs, and is asked at its gRPC port, with --tls-ca if it has TLS"})
		return findings
	}
	if health.GetReady() {
		add(node.Good, "node "+health.GetNodeId(), "answers at %s and is ready", q.node)
	} else {
		findings = append(findings, node.Finding{Severity: node.Bad, Subject: "node " + health.GetNodeId(), Text: "answers at " + q.node + " and is not ready", Advice: notReady})
	}
	if !ends.IsZero() {
		findings = append(findings, node.Ends("tls-cert", "the certificate of node "+health.GetNodeId(), ends))
	}
	if health.GetVersion() == "" {
		add(node.Doubtful, "health", "the node reports no details here: ask its --admin port")
	}
	for _, reason := range health.GetReasons() {
		add(node.Doubtful, "health", "%s", reason)
	}
	return append(findings, q.examineNodes(ctx, c)...)
}

// examineNodes says what a node knows of the others.
func (q *nodeFlags) examineNodes(ctx context.Context, c *client.Node) (findings []node.Finding) {
	add := func(severity node.Severity, subject, text string) {
		findings = append(findings, node.Finding{Severity: severity, Subject: subject, Text: text})
	}
	response, err := c.ListNodes(ctx)
	if err != nil {
		add(node.Bad, "nodes", q.explain(err).Error())
		return findings
	}
	for _, n := range response.GetNodes() {
		subject := "node " + n.GetId()
		switch {
		case n.GetUnreached() != "":
			add(node.Bad, subject, "is no member: "+n.GetUnreached())
		case !n.GetReachable():
			add(node.Bad, subject, "does not answer the asked node at "+n.GetAddress())
		case !n.GetMember() || n.GetState() != weirv1.NodeState_NODE_STATE_READY:
			add(node.Doubtful, subject, "is "+formatState(n.GetState())+" at "+n.GetAddress())
		default:
			add(node.Good, subject, "is a member, and answers the asked node at "+n.GetAddress())
		}
	}
	var running []node.Running
	for _, n := range response.GetNodes() {
		running = append(running, node.Running{ID: n.GetId(), Version: n.GetVersion(), RulesHash: n.GetRulesHash()})
	}
	findings = append(findings, node.CompareNodes(running)...)
	return append(findings, q.examineNodeOptions(ctx, response.GetNodes())...)
}

// sameOptions are the options by which a check is decided, and that are therefore to be the same on all nodes.
var sameOptions = []string{"lyft-algorithm", "merge-domains", "xds-server", "xds-node-id", "rls-count-denied", "rls-shadow", "rls-quota"}

// examineNodeOptions asks all members that answer for their options, and names those that differ although they are to be the same.
func (q *nodeFlags) examineNodeOptions(ctx context.Context, nodes []*weirv1.Node) (findings []node.Finding) {
	add := func(severity node.Severity, text string) {
		findings = append(findings, node.Finding{Severity: severity, Subject: "options", Text: text})
	}
	byOption, asked := make(map[string]map[string][]string), 0 // ids of nodes by option and value
	for _, n := range nodes {
		if !n.GetMember() || !n.GetReachable() {
			continue
		}
		response, err := q.optionsOf(ctx, n)
		if status.Code(err) == codes.Unimplemented {
			continue // an older version, or a port without admin calls
		}
		if err != nil {
			add(node.Doubtful, fmt.Sprintf("node %s does not say with which options it runs: %v", n.GetId(), q.explain(err)))
			continue
		}
		asked++
		for _, o := range response.GetOptions() {
			if byOption[o.GetName()] == nil {
				byOption[o.GetName()] = make(map[string][]string)
			}
			byOption[o.GetName()][o.GetValue()] = append(byOption[o.GetName()][o.GetValue()], n.GetId())
		}
	}
	for _, name := range sameOptions {
		if len(byOption[name]) < 2 {
			continue
		}
		var values []string
		for _, value := range slices.Sorted(maps.Keys(byOption[name])) {
			values = append(values, fmt.Sprintf("%q on %s", value, strings.Join(byOption[name][value], ", ")))
		}
		add(node.Doubtful, fmt.Sprintf("--%s is to be the same on all nodes, and is %s", name, strings.Join(values, ", ")))
	}
	if len(findings) == 0 && asked > 0 {
		add(node.Good, count(asked, "node")+" asked: what is to be the same on all nodes is")
	}
	return findings
}

func (q *nodeFlags) optionsOf(ctx context.Context, n *weirv1.Node) (*weirv1.GetOptionsResponse, error) {
	c, err := q.connectAdmin(ctx, n)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }() // all is said by then
	return c.GetOptions(ctx)
}

// printFindings prints one line for each, and returns exit code 1 if one is an error.
func (a *app) printFindings(asJSON bool, findings []node.Finding) error {
	failed := false
	var out strings.Builder
	table := newTable(&out, "FOUND", "OF", "WHAT")
	for _, f := range findings {
		failed = failed || f.Severity == node.Bad
		text := f.Text
		if f.Advice != "" {
			text += "; to do: " + f.Advice
		}
		table.row(f.Severity, f.Subject, strings.Join(strings.Fields(text), " "))
	}
	table.flush()
	text := out.String()
	if asJSON {
		data, err := json.Marshal(struct {
			Findings []node.Finding `json:"findings"`
		}{findings})
		if err != nil {
			return err
		}
		text = string(data) + "\n"
	}
	if _, err := io.WriteString(a.stdout, text); err != nil {
		return err
	}
	if failed {
		return &exitError{code: 1}
	}
	return nil
}
