package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/internal/certs"
)

const (
	// defaultNode is where a node serves gRPC if it is not told otherwise.
	defaultNode = "127.0.0.1:9090"
	// defaultAskTimeout is for a person, who would rather wait than fail.
	defaultAskTimeout = 2 * time.Second
)

// nodeFlags are what the commands that ask a node have in common.
type nodeFlags struct {
	node    string
	where   string // where node was given
	timeout time.Duration
	json    bool
	files   certs.Files // as given; empty: not encrypted

	tokenFile string // as given; empty: none

	secured *tls.Config // read from files; nil: not encrypted
	token   string      // read from tokenFile
}

// addTo defines the flags. A timeout that is set already is the default.
func (q *nodeFlags) addTo(cmd *cobra.Command) {
	q.add(cmd, true)
}

// add defines the flags, of commands whose answer is no message without --json.
func (q *nodeFlags) add(cmd *cobra.Command, json bool) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&q.node, "node", defaultNode, "`HOST:PORT` of the node's gRPC; $WEIR_NODE sets it as well")
	flags.StringVar(&q.files.CA, "tls-ca", "", "`FILE` of the cluster's CA, if its nodes have TLS; $WEIR_TLS_CA sets it as well")
	flags.StringVar(&q.files.Cert, "tls-cert", "", "`FILE` of a client's certificate, if nodes want one; $WEIR_TLS_CERT sets it as well")
	flags.StringVar(&q.files.Key, "tls-key", "", "`FILE` of the certificate's key; $WEIR_TLS_KEY sets it as well")
	flags.StringVar(&q.tokenFile, "token-file", "", "`FILE` with a token of weir tokens create; $WEIR_TOKEN_FILE sets it as well, and $WEIR_TOKEN the token itself")
	if json {
		flags.BoolVar(&q.json, "json", false, "print JSON")
	}
	flags.DurationVar(&q.timeout, "timeout", cmp.Or(q.timeout, defaultAskTimeout), "wait at most `DURATION` for the answer")
}

// ask calls the node. What goes wrong becomes an error with exit code 2, because
// 1 means a denied check.
func (a *app) ask(cmd *cobra.Command, q *nodeFlags, call func(context.Context, *client.Node) error) error {
	a.locate(cmd, q)
	if q.timeout <= 0 {
		return usageError(cmd, "--timeout: %v is not above 0", q.timeout)
	}
	if err := a.secure(cmd, q); err != nil {
		return &exitError{err: err, code: 2}
	}
	c, err := q.connect(q.node)
	if err != nil {
		return &exitError{err: fmt.Errorf("%s: %w", q.where, err), code: 2}
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), q.timeout)
	defer cancel()
	err = call(ctx, c)
	if closeErr := c.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return &exitError{err: q.explain(err), code: 2}
	}
	return nil
}

// locate finds out which node is asked.
func (a *app) locate(cmd *cobra.Command, q *nodeFlags) {
	q.where = "--node"
	if address := a.env[variable("node")]; address != "" && !cmd.Flags().Changed("node") {
		q.node, q.where = address, variable("node")
	}
}

// checkAddress refuses the address of a node that is none, for commands that go on if the node does not answer.
func (q *nodeFlags) checkAddress() error {
	c, err := q.connect(q.node)
	if err != nil {
		return &exitError{err: fmt.Errorf("%s: %w", q.where, err), code: 2}
	}
	return c.Close()
}

// secure reads the files of TLS, each from its flag or its variable.
func (a *app) secure(cmd *cobra.Command, q *nodeFlags) (err error) {
	for _, f := range []struct {
		name string
		path *string
	}{{"tls-ca", &q.files.CA}, {"tls-cert", &q.files.Cert}, {"tls-key", &q.files.Key}} {
		if path := a.env[variable(f.name)]; path != "" && !cmd.Flags().Changed(f.name) {
			*f.path = path
		}
	}
	if err := a.readToken(cmd, q); err != nil {
		return err
	}
	if q.files == (certs.Files{}) {
		if q.token != "" {
			return errors.New("a token is not sent unencrypted: pass --tls-ca, the CA of the node that is asked")
		}
		return nil
	}
	if q.files.CA == "" {
		return errors.New("--tls-cert and --tls-key need --tls-ca, the CA of the node that is asked")
	}
	q.secured, err = certs.ClientConfig(q.files)
	return err
}

// readToken reads the token of --token-file, $WEIR_TOKEN_FILE or $WEIR_TOKEN, if there is one.
func (a *app) readToken(cmd *cobra.Command, q *nodeFlags) error {
	if path := a.env[variable("token-file")]; path != "" && !cmd.Flags().Changed("token-file") {
		q.tokenFile = path
	}
	if q.tokenFile == "" {
		q.token = a.env[variable("token")]
		return nil
	}
	text, err := os.ReadFile(q.tokenFile)
	if err != nil {
		return fmt.Errorf("--token-file: %w", err)
	}
	if q.token = strings.TrimSpace(string(text)); q.token == "" {
		return fmt.Errorf("--token-file: %s is empty", q.tokenFile)
	}
	return nil
}

// connect returns a client of a node.
func (q *nodeFlags) connect(address string) (*client.Node, error) {
	var options []client.Option
	if q.secured != nil {
		options = append(options, client.WithTLS(q.secured))
	}
	if q.token != "" {
		options = append(options, client.WithAccessToken(q.token))
	}
	return client.NewNode(address, options...)
}

// connectAdmin returns a client of the port of a node that serves admin calls. The error says if another node answers
// there, as one may if the address is on loopback and the node is on another machine.
func (q *nodeFlags) connectAdmin(ctx context.Context, n *weirv1.Node) (*client.Node, error) {
	address := cmp.Or(n.GetAdminAddress(), n.GetAddress())
	c, err := q.connect(address)
	if err != nil {
		return nil, fmt.Errorf("node %s at %s: %w", n.GetId(), address, err)
	}
	if n.GetAdminAddress() == "" {
		return c, nil
	}
	health, err := c.Health(ctx)
	if err == nil && health.GetNodeId() != n.GetId() {
		err = fmt.Errorf("node %s answers at %s, the admin port of node %s: is that on loopback of another machine?", health.GetNodeId(), address, n.GetId())
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}
