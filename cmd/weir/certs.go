package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/access"
	"github.com/weirlimit/weir/internal/certs"
)

// defaultCertsDir is where certificates are made.
const defaultCertsDir = "certs"

func (a *app) certsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "certs COMMAND",
		Short: "Make certificates for nodes and clients",
		Args:  knownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.certsInitCommand(), a.certsNodeCommand(), a.certsClientCommand())
	return cmd
}

// making is what the commands that make certificates have in common.
type making struct {
	dir   string
	hosts []string
}

func (m *making) addTo(cmd *cobra.Command, forNodes bool) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&m.dir, "dir", defaultCertsDir, "`DIR` of the CA and all that it issues")
	if forNodes {
		flags.StringSliceVar(&m.hosts, "host", nil, "`NAME-or-ADDRESS` under which clients ask the nodes (default localhost, its addresses, and this host's name)")
	}
}

func (a *app) certsInitCommand() *cobra.Command {
	var m making
	var cluster string
	var nodes []string
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the CA of a cluster, and certificates for a start",
		Long: `Make the CA of a cluster, a certificate for each --node, and one of a client that may do
everything, which is called admin. Files are readable for their owner only, and nothing is
overwritten.

Keep the CA's key (ca.key) apart: nodes and clients need only ca.crt and their own two files.`,
		Example: `  weir certs init --node a --node b
  weir certs init --dir /etc/weir/certs --cluster shop --node weir-0 --host weir-0.weir --host 10.0.0.7`,
		Args: noArgs,
		RunE: func(_ *cobra.Command, _ []string) error {
			now := time.Now()
			ca, err := certs.CreateAuthority(m.dir, cluster, now)
			if _, missing := os.Stat(filepath.Join(m.dir, "ca.key")); errors.Is(err, fs.ErrExist) && missing == nil {
				return &exitError{err: fmt.Errorf("%s has a CA already, which the nodes of a cluster share; \"weir certs node ID\" makes the certificate of another node with it", m.dir), code: 2}
			}
			if err != nil {
				return certsError(err)
			}
			fmt.Fprintf(a.stdout, "%s  the CA of cluster %q\n", ca.CertFile(), cluster)
			for _, id := range nodes {
				if err := a.issue(ca, certs.Name{Kind: certs.Node, ID: id}, m.hosts, now); err != nil {
					return err
				}
			}
			return a.issue(ca, certs.Name{Kind: certs.Client, ID: "admin", Role: "admin"}, nil, now)
		},
	}
	m.addTo(cmd, true)
	cmd.Flags().StringVar(&cluster, "cluster", "default", "`NAME` of the cluster, as in weir serve --cluster")
	cmd.Flags().StringSliceVar(&nodes, "node", nil, "`ID` of a node, as in weir serve --id; repeat it for more")
	return cmd
}

func (a *app) certsNodeCommand() *cobra.Command {
	var m making
	cmd := &cobra.Command{
		Use:     "node ID",
		Short:   "Make the certificate of a node",
		Example: `  weir certs node c --host weir-c.example.com`,
		Args:    oneName("node", "the id of one node, as in weir serve --id"),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.issueFrom(m, certs.Name{Kind: certs.Node, ID: args[0]})
		},
	}
	m.addTo(cmd, true)
	return cmd
}

func (a *app) certsClientCommand() *cobra.Command {
	var m making
	var role string
	cmd := &cobra.Command{
		Use:   "client NAME --role ROLE",
		Short: "Make the certificate of a client",
		Example: `  weir certs client checkout --role check
  weir certs client ops --role admin`,
		Args: oneName("client", "the name of one client"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if role == "" {
				return usageError(cmd, "--role: must be one of %s", strings.Join(access.ClientRoles, ", "))
			}
			return a.issueFrom(m, certs.Name{Kind: certs.Client, ID: args[0], Role: role})
		},
	}
	m.addTo(cmd, false)
	cmd.Flags().StringVar(&role, "role", "", "`ROLE,...` of the client: "+strings.Join(access.ClientRoles, ", ")+"; check and rules may name a domain, as rules:shop")
	return cmd
}

func oneName(command, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usageError(cmd, "%s takes %s, but got %q", command, what, args)
		}
		return nil
	}
}

func (a *app) issueFrom(m making, n certs.Name) error {
	ca, err := certs.OpenAuthority(m.dir)
	if err != nil {
		return certsError(err)
	}
	return a.issue(ca, n, m.hosts, time.Now())
}

// issue makes a certificate and tells its files.
func (a *app) issue(ca *certs.Authority, n certs.Name, hosts []string, now time.Time) error {
	if n.Kind == certs.Node && len(hosts) == 0 {
		hosts = localHosts()
	}
	for _, host := range hosts {
		if net.ParseIP(host) == nil && (host == "" || strings.ContainsAny(host, ":/ ")) {
			return &exitError{err: fmt.Errorf("--host: %q is neither a host name nor an address", host), code: 2}
		}
	}
	pair, err := ca.Issue(n, hosts, now)
	if err != nil {
		return certsError(err)
	}
	what := fmt.Sprintf("%s %q", n.Kind, n.ID)
	if n.Role != "" {
		what += ", role " + n.Role
	}
	if len(hosts) > 0 {
		what += ", at " + strings.Join(hosts, ", ")
	}
	_, err = fmt.Fprintf(a.stdout, "%s  %s\n", pair.Cert, what)
	return err
}

// localHosts returns under which names this machine is asked by itself and its neighbors.
func localHosts() []string {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	if name, err := os.Hostname(); err == nil && name != "localhost" {
		hosts = append(hosts, name)
	}
	return hosts
}

// certsError says that nothing is overwritten.
func certsError(err error) error {
	if errors.Is(err, fs.ErrExist) {
		var path *fs.PathError
		_ = errors.As(err, &path) // Create and mkdir return one
		err = fmt.Errorf("%s exists already, and nothing is overwritten: move it away first", cmp.Or(path, &fs.PathError{}).Path)
	}
	return &exitError{err: err, code: 2}
}
