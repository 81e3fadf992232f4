package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/node"
)

// Bounds of a bundle.
const (
	maxBundledFile = 8 << 20  // bytes of a file; what is longer is cut
	maxBundle      = 24 << 20 // bytes of all files before they are packed; what is longer is cut, in the order of their names
	bundlePatient  = 5 * time.Second
)

// bundleFlags are the flags of weir support-bundle.
type bundleFlags struct {
	nodeFlags
	config, http, profiles, out string
}

func (a *app) bundleCommand() *cobra.Command {
	f := bundleFlags{nodeFlags: nodeFlags{timeout: bundlePatient}}
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Write what helps to find a fault into an archive",
		Long: `Ask a node for all that helps to find a fault, and write it into one archive (tar, gzip):

  - version.txt, health.json, nodes.json, ring.json: the program, and what the node knows
  - doctor.json: the findings of weir doctor, about --config if it is given, and else about the node
  - options.json: the options in --config, and in the environment
  - node-options.json: the options with which the node runs, from --node with the role admin
  - metrics.txt: the metrics but those of descriptors, from --http, or from --node if that is an admin port
  - goroutines.txt: what the node is doing, from --profiles, or from --node if that is an admin port
  - errors.txt: what could not be had, and why

Private keys, tokens, passwords, values of --xds-headers and --xds-metadata, and what the files of secrets
of --config have are replaced by REDACTED.
Names of nodes, their addresses and the paths of files are in it, and so are the names of rules in metrics.
No counter and no key of one is. No file is larger than 8 MiB.

The exit code is 0 if the archive was written, also if parts are missing, and 2 if it was not.`,
		Example: `  weir support-bundle --config /etc/weir/weir.yaml
  weir support-bundle --node 10.0.0.1:9099 --tls-ca ca.crt --tls-cert client-admin.crt --tls-key client-admin.key`,
		Args: noArgs,
	}
	flags := cmd.Flags()
	f.add(cmd, false)
	flags.StringVar(&f.config, "config", "", "`FILE` of options of the node")
	flags.StringVar(&f.http, "http", "", "`HOST:PORT` with the node's metrics (default the option http of --config, and else 127.0.0.1:8080)")
	flags.StringVar(&f.profiles, "profiles", "", "`HOST:PORT` of the node's --pprof (default the option pprof of --config)")
	flags.StringVarP(&f.out, "output", "o", "", "write `FILE`, which must not exist (default weir-support-TIME.tar.gz)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.timeout <= 0 {
			return usageError(cmd, "--timeout: %v is not above 0", f.timeout)
		}
		a.locate(cmd, &f.nodeFlags)
		if err := a.secure(cmd, &f.nodeFlags); err != nil {
			return &exitError{err: err, code: 2}
		}
		if err := f.checkAddress(); err != nil {
			return err
		}
		return a.writeBundle(cmd, &f)
	}
	return cmd
}

// bundle collects the files of an archive.
type bundle struct {
	files  map[string][]byte
	hide   [][]byte // secrets
	errors []string
}

func (b *bundle) add(name string, text []byte, err error) {
	if err != nil {
		b.errors = append(b.errors, fmt.Sprintf("%s: %v", name, err))
	}
	if len(text) > 0 {
		b.files[name] = text
	}
}

func (b *bundle) addJSON(name string, value any) {
	text, err := json.MarshalIndent(value, "", "  ")
	b.add(name, text, err)
}

func (b *bundle) addMessage(name string, message proto.Message, err error) {
	if err != nil {
		b.add(name, nil, err)
		return
	}
	text, err := toJSON(message)
	b.add(name, []byte(text), err)
}

func (a *app) writeBundle(cmd *cobra.Command, f *bundleFlags) error {
	now := time.Now().UTC()
	out := cmp.Or(f.out, "weir-support-"+now.Format("20060102T150405Z")+".tar.gz")
	b := &bundle{files: make(map[string][]byte)}
	b.files["version.txt"] = []byte(versionText() + "\n")
	opts := a.bundleOptions(b, f)
	b.hide = append(b.hide, secretsOf(opts, f.nodeFlags, a.env)...)
	a.bundleNode(cmd.Context(), b, f, opts)
	if len(b.errors) > 0 {
		b.files["errors.txt"] = []byte(strings.Join(b.errors, "\n") + "\n")
	}
	file, err := os.OpenFile(out, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return &exitError{err: fmt.Errorf("--output: %w", err), code: 2}
	}
	err = errors.Join(b.write(file, "weir-support", now, maxBundledFile, maxBundle), file.Close())
	if err != nil {
		return &exitError{err: errors.Join(fmt.Errorf("write %s: %w", out, err), os.Remove(out)), code: 2}
	}
	_, err = fmt.Fprintf(a.stdout, "wrote %s with %s; look into it before you pass it on\n", out, count(len(b.files), "file"))
	return err
}

// bundleOptions adds the options of --config and the environment, and doctor's findings about them.
func (a *app) bundleOptions(b *bundle, f *bundleFlags) node.Options {
	flags := pflag.NewFlagSet("options", pflag.ContinueOnError)
	addOptions(flags)
	if f.config != "" {
		if err := flags.Set("config", f.config); err != nil {
			b.add("options.json", nil, err)
			return node.Options{}
		}
	}
	opts, values, err := readOptions(flags, a.env)
	if err != nil {
		b.add("options.json", nil, err)
		return node.Options{}
	}
	shown := make(map[string]string)
	for name, value := range values {
		shown[name] = value.text
	}
	b.addJSON("options.json", shown)
	if f.config != "" {
		ctx, cancel := context.WithTimeout(context.Background(), 2*bundlePatient)
		defer cancel()
		b.addJSON("doctor.json", struct {
			Findings []node.Finding `json:"findings"`
		}{node.Examine(ctx, opts)})
	}
	return opts
}

// bundleNode adds what the node that runs says.
func (a *app) bundleNode(ctx context.Context, b *bundle, f *bundleFlags, opts node.Options) {
	ctx, cancel := context.WithTimeout(ctx, 6*f.timeout)
	defer cancel()
	if c, err := f.connect(f.node); err != nil {
		b.add("health.json", nil, fmt.Errorf("%s: %w", f.where, err))
	} else {
		f.bundleCalls(ctx, b, c)
		b.add("node", nil, c.Close())
	}
	if b.files["doctor.json"] == nil {
		b.addJSON("doctor.json", struct {
			Findings []node.Finding `json:"findings"`
		}{node.Advise(f.examine(ctx))})
	}
	text, err := f.fetch(ctx, "/metrics", f.http, opts.Admin, f.node, opts.HTTP, "127.0.0.1:8080")
	b.add("metrics.txt", withoutDescriptors(text), err)
	text, err = f.fetch(ctx, "/debug/pprof/goroutine?debug=1", f.profiles, opts.Pprof, opts.Admin, f.node)
	b.add("goroutines.txt", text, err)
}

// withoutDescriptors returns metrics without those of descriptors, whose labels may have the values of identifiers.
func withoutDescriptors(metrics []byte) []byte {
	var kept []byte
	for line := range bytes.Lines(metrics) {
		if !bytes.HasPrefix(bytes.TrimPrefix(bytes.TrimPrefix(line, []byte("# HELP ")), []byte("# TYPE ")), []byte("ratelimit_service_")) {
			kept = append(kept, line...)
		}
	}
	return kept
}

func (f *bundleFlags) bundleCalls(ctx context.Context, b *bundle, c *client.Node) {
	ctx, cancel := context.WithTimeout(ctx, 3*f.timeout)
	defer cancel()
	health, err := c.Health(ctx)
	b.addMessage("health.json", health, err)
	nodes, err := c.ListNodes(ctx)
	b.addMessage("nodes.json", nodes, err)
	ring, err := c.GetRing(ctx, true)
	b.addMessage("ring.json", ring, err)
	options, err := c.GetOptions(ctx)
	b.addMessage("node-options.json", options, err)
}

// fetch gets a path over HTTP from the first address that serves it.
func (f *bundleFlags) fetch(ctx context.Context, path string, addresses ...string) ([]byte, error) {
	var errs []error
	asked := make(map[string]bool)
	for _, address := range addresses {
		if address == "" || asked[address] {
			continue
		}
		asked[address] = true
		text, err := f.get(ctx, address, path)
		if err == nil {
			return text, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		errs = append(errs, errors.New("no address is known"))
	}
	return nil, errors.Join(errs...)
}

func (f *bundleFlags) get(ctx context.Context, address, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: f.secured}
	scheme := "http://"
	if f.secured != nil {
		scheme = "https://"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+dialable(address)+path, nil)
	if err != nil {
		return nil, err
	}
	if f.token != "" && f.secured != nil {
		req.Header.Set("Authorization", "Bearer "+f.token)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s%s: %s", address, path, resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxBundledFile+1))
}

// cutMark ends a file of which a part is left out.
const cutMark = "\n(cut)\n"

// write writes the archive without secrets. It takes at most each bytes of a file and all bytes of all files, and
// marks the files that it cuts.
func (b *bundle) write(w io.Writer, dir string, now time.Time, each, all int) error {
	packed := gzip.NewWriter(w)
	archive := tar.NewWriter(packed)
	names := make([]string, 0, len(b.files))
	for name := range b.files {
		names = append(names, name)
	}
	slices.Sort(names)
	left := all
	for _, name := range names {
		text := redact(b.files[name], b.hide)
		if most := min(each, left); len(text) > most {
			text = append(bytes.Clone(text[:most]), cutMark...)
		}
		left -= min(left, len(text))
		header := &tar.Header{Name: filepath.ToSlash(filepath.Join(dir, name)), Mode: 0o600, Size: int64(len(text)), ModTime: now}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(text); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), packed.Close())
}
