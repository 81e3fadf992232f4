package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"io"
	"mime/multipart"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/weirlimit/weir/test/process"
)

// hourPage returns the text of the dashboard's page about rules that are tried on the last hour.
func hourPage(n *process.Node, rules string) (string, error) {
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	if err := errors.Join(parts.WriteField("rules", rules), parts.WriteField("source", "hour"), parts.Close()); err != nil {
		return "", err
	}
	resp, err := http.Post("http://"+n.HTTP+"/ui/backtest", parts.FormDataContentType(), &form)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(resp.Body)
	return html.UnescapeString(string(text)), errors.Join(err, resp.Body.Close())
}

// The dashboard tries rules on the last hour of the whole cluster: it denies what the checks of all nodes come to. The page names the nodes
// that have no log, or do not answer.
func TestLastHourOfAllNodes(t *testing.T) {
	const rule = "domain: default\nrules:\n  - {id: posts, per: [user], limits: [{limit: %d, window: {calendar: year}, algorithm: fixed_window}]}\n"
	etcd, file, dir := process.StartEtcd(t), writeRules(t, fmt.Sprintf(rule, 100)), t.TempDir()
	nodes := make([]*process.Node, 4)
	var starting sync.WaitGroup
	for i, id := range []string{"a", "b", "c", "d"} {
		args := []string{"--id", id, "--etcd", etcd.Endpoint, "--rules", file}
		if id != "d" {
			args = append(args, "--decision-log", filepath.Join(dir, id+".log"), "--decision-log-which", "all", "--decision-log-keys", "clear")
		}
		starting.Go(func() { nodes[i] = process.Start(t, args...) })
	}
	starting.Wait()
	process.AwaitMembers(t, process.Patience, nodes...)
	for round := range 4 {
		for i, n := range nodes {
			for range i + 1 {
				decide(t, n, user(fmt.Sprint("u", round%2)))
			}
		}
	}
	// a, b and c were asked for 24 checks, 12 for each user.
	stricter := fmt.Sprintf(rule, 5)
	await := func(n *process.Node, parts ...string) {
		t.Helper()
		process.Await(t, process.Patience, func() error { // lines are written a moment later
			page, err := hourPage(n, stricter)
			if err != nil {
				return err
			}
			for _, part := range parts {
				if !strings.Contains(page, part) {
					return fmt.Errorf("the page has no %q:\n%s", part, page)
				}
			}
			return nil
		})
	}
	all := []string{"<dt>Lines</dt><dd>24</dd>", "<dt>Newly denied</dt><dd>14</dd>", "The lines are those of the nodes a, b, c.", "Without d: keeps no decision log in a file."}
	await(nodes[0], all...)
	await(nodes[3], all...) // which has none

	nodes[2].Signal(syscall.SIGSTOP) // it stops a moment later
	await(nodes[0], "<dt>Lines</dt><dd>12</dd>", "<dt>Newly denied</dt><dd>2</dd>", "The lines are those of the nodes a, b.", "Without c: no answer.")
	nodes[2].Signal(syscall.SIGCONT)
}
