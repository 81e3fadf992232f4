package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/node"
)

func (a *app) healthcheckCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask the node of these options whether it is ready",
		Long: `Read the options of a node as "weir serve" does, from flags, the environment and --config,
and ask the node that runs with them whether it is ready, by GET /readyz of its --http. It is for the health check of a
container, which has the node's environment and no shell. --http must name a port.

With TLS the command shows the node's own certificate, and does not verify that of the other end: it asks this machine,
and sends nothing secret.

The exit code is 0 if the node is ready, and 1 in all other cases, as Docker wants it.`,
		Example: `  weir healthcheck
  weir healthcheck --config /etc/weir/weir.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if timeout <= 0 {
				return &exitError{err: fmt.Errorf("--timeout: %v is not above 0", timeout), code: 1}
			}
			opts, _, err := readOptions(cmd.Flags(), a.env)
			if err == nil {
				ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
				defer cancel()
				err = askReady(ctx, opts)
			}
			if err != nil {
				return &exitError{err: err, code: 1}
			}
			return nil
		},
	}
	addOptions(cmd.Flags())
	cmd.Flags().DurationVar(&timeout, "timeout", defaultAskTimeout, "wait at most `DURATION` for the answer")
	return cmd
}

// askReady returns an error unless the node with these options says that it is ready.
func askReady(ctx context.Context, opts node.Options) error {
	address := dialable(opts.HTTP)
	if _, port, err := net.SplitHostPort(address); err != nil || port == "0" {
		return fmt.Errorf("http: %s names no port to ask", opts.HTTP)
	}
	scheme, transport := "http", &http.Transport{DisableKeepAlives: true}
	if opts.TLSCert != "" {
		secured, err := certs.ClientConfig(certs.Files{CA: opts.TLSCA, Cert: opts.TLSCert, Key: opts.TLSKey})
		if err != nil {
			return err
		}
		secured.InsecureSkipVerify = true // it asks this machine, and sends nothing secret; the certificate may not name loopback
		scheme, transport.TLSClientConfig = "https", secured
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+address+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close() // the status says all
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the node at %s is not ready: /readyz answers %s", address, resp.Status)
	}
	return nil
}
