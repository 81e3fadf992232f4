package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/internal/access"
)

// defaultTokens is the file of tokens.
const defaultTokens = "tokens"

func (a *app) tokensCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tokens COMMAND",
		Short: "Make, list and revoke tokens of clients",
		Long: `Make, list and revoke tokens of clients: with --node those of the cluster, which stand in etcd and are in force on all
its nodes; else those of a file, for weir serve --tokens.`,
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.tokensCreateCommand(), a.tokensListCommand(), a.tokensRevokeCommand())
	return cmd
}

// tokenPlace is where the tokens of a command stand: in a file, or in the cluster of a node.
type tokenPlace struct {
	file string
	q    nodeFlags
}

// addTo defines the flags.
func (p *tokenPlace) addTo(cmd *cobra.Command, json bool) {
	cmd.Flags().StringVar(&p.file, "file", defaultTokens, "`FILE` of tokens, as in weir serve --tokens, unless --node is given")
	p.q.add(cmd, json)
	node := cmd.Flags().Lookup("node")
	node.Usage, node.DefValue = "`HOST:PORT` of a node's gRPC, or of its --admin: for the tokens of its cluster, not of a file", ""
}

// isCluster reports whether the tokens are those of a cluster. The error says that both places were given.
func (p *tokenPlace) isCluster(cmd *cobra.Command) (bool, error) {
	node := cmd.Flags().Changed("node")
	if node && cmd.Flags().Changed("file") {
		return false, usageError(cmd, "--file: tokens stand in a file or, with --node, in a cluster")
	}
	return node, nil
}

func (a *app) tokensCreateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create NAME --role ROLE",
		Short: "Make a token",
		Long: `Make a random token for a client and print it. The cluster of --node, or the file, which is made if it is
missing, gets its name, its roles and its SHA-256: the token cannot be shown again. All nodes of the
cluster accept it within a second. Nodes read a file again when it changes.`,
		Example: `  weir tokens create checkout --role check:shop --node 10.0.0.1:9090
  weir tokens create prometheus --role metrics --file /etc/weir/tokens`,
		Args: oneName("create", "the name of one client"),
	}
	var p tokenPlace
	p.addTo(cmd, false)
	role := cmd.Flags().String("role", "", "`ROLE,...` of the client: "+strings.Join(access.ClientRoles, ", ")+"; check and rules may name a domain, as rules:shop")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		inCluster, err := p.isCluster(cmd)
		if err != nil {
			return err
		}
		if *role == "" {
			return usageError(cmd, "--role: must be one of %s", strings.Join(access.ClientRoles, ", "))
		}
		grants, err := access.ParseGrants(*role)
		if err != nil {
			return usageError(cmd, "--role: %v", err)
		}
		secret := access.NewSecret()
		token := access.Token{Name: args[0], Grants: grants, Digest: access.Hash(secret)}
		if err := token.Validate(); err != nil {
			return usageError(cmd, "%v", err)
		}
		if inCluster {
			err = a.ask(cmd, &p.q, func(ctx context.Context, c *client.Node) error {
				return c.CreateAccessToken(ctx, token.Name, access.FormatGrants(grants), token.Digest[:])
			})
		} else if err = addToken(p.file, token); err != nil {
			err = &exitError{err: err, code: 2}
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(a.stdout, secret)
		return err
	}
	return cmd
}

func (a *app) tokensListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the names and roles of tokens",
		Example: `  weir tokens list --node 10.0.0.1:9090   those of the cluster that are in force on that node
  weir tokens list --file /etc/weir/tokens`,
		Args: noArgs,
	}
	var p tokenPlace
	p.addTo(cmd, true)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		inCluster, err := p.isCluster(cmd)
		if err != nil {
			return err
		}
		if inCluster {
			return a.ask(cmd, &p.q, func(ctx context.Context, c *client.Node) error {
				response, err := c.ListAccessTokens(ctx)
				if err != nil {
					return err
				}
				return a.print(p.q.json, response, formatTokens(response))
			})
		}
		_, tokens, err := readTokens(p.file)
		if err != nil {
			return &exitError{err: err, code: 2}
		}
		response := &weirv1.ListAccessTokensResponse{}
		for _, t := range tokens {
			response.AccessTokens = append(response.AccessTokens, &weirv1.AccessToken{Name: t.Name, Roles: access.FormatGrants(t.Grants)})
		}
		return a.print(p.q.json, response, formatTokens(response))
	}
	return cmd
}

// formatTokens returns a line per token.
func formatTokens(response *weirv1.ListAccessTokensResponse) string {
	var b strings.Builder
	for _, t := range response.GetAccessTokens() {
		fmt.Fprintln(&b, t.GetName(), t.GetRoles())
	}
	return b.String()
}

func (a *app) tokensRevokeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke NAME",
		Short: "Remove a token: nodes refuse it within a second",
		Long: `Remove a token from the cluster of --node, or from the file. All nodes of the cluster that reach etcd, or that have
the file, refuse the token within a second, and end its streams.`,
		Example: `  weir tokens revoke checkout --node 10.0.0.1:9090
  weir tokens revoke prometheus --file /etc/weir/tokens`,
		Args: oneName("revoke", "the name of one token"),
	}
	var p tokenPlace
	p.addTo(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		inCluster, err := p.isCluster(cmd)
		if err != nil {
			return err
		}
		if inCluster {
			return a.ask(cmd, &p.q, func(ctx context.Context, c *client.Node) error { return c.RevokeAccessToken(ctx, args[0]) })
		}
		if err := revokeInFile(p.file, args[0]); err != nil {
			return &exitError{err: err, code: 2}
		}
		return nil
	}
	return cmd
}

// revokeInFile removes a token from a file.
func revokeInFile(path, name string) error {
	text, tokens, err := readTokens(path)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(tokens, func(t access.Token) bool { return t.Name == name }) {
		return fmt.Errorf("%s has no token %q", path, name)
	}
	return replaceFile(path, withoutToken(text, name))
}

// readTokens returns a file of tokens as it stands there, and parsed.
func readTokens(path string) (string, []access.Token, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", nil, err
	}
	tokens, err := access.ParseTokens(string(text))
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", path, err)
	}
	return string(text), tokens, nil
}

// addToken adds a token to a file, which need not be there.
func addToken(path string, token access.Token) error {
	text, _, err := readTokens(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if text == "" {
		text = access.FormatTokens(nil)
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	text += token.String() + "\n"
	if _, err := access.ParseTokens(text); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return replaceFile(path, text)
}

// withoutToken returns a file of tokens without the line of one. Comments stay.
func withoutToken(text, name string) string {
	var left strings.Builder
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) == 0 || fields[0] != name {
			left.WriteString(line)
		}
	}
	return left.String()
}

// replaceFile writes a file that only its owner reads. Nodes see it before or after, and never half of it.
func replaceFile(path, text string) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // of mode 0600
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
