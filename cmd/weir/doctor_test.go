package main

import (
	"path/filepath"
	"strings"
	"testing"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// The doctor asks the node of WEIR_NODE as other commands do, with the certificate of WEIR_TLS_CERT as a client's, unless a flag says what
// node to examine instead.
func TestDoctorAsksTheNodeOfTheEnvironment(t *testing.T) {
	const refused = "127.0.0.1:1" // reserved for tcpmux; no process listens there
	missing := filepath.Join(t.TempDir(), "missing.crt")
	env := []string{"WEIR_NODE=" + refused, "WEIR_DATA_DIR=" + t.TempDir()}
	asked := "no node answers at " + refused
	for _, tc := range []struct {
		env  []string
		args []string
		want string
		asks bool
	}{
		{env, nil, asked, true},
		{append(env, "WEIR_ID=a"), nil, asked, true},
		{append(env, "WEIR_TLS_CA="+missing, "WEIR_TLS_CERT="+missing, "WEIR_TLS_KEY="+missing), nil, missing, true},
		{env, []string{"--tls-ca", missing, "--tls-cert", missing, "--tls-key", missing}, missing, true},
		{append(env, "WEIR_NODE=9090"), nil, `WEIR_NODE: address "9090" is not host:port`, true},
		{append(env, "WEIR_NODE=9090"), []string{"--node", refused}, asked, true},
		{env, []string{"--id", "a", "--grpc", "x"}, `grpc: "x" is not host:port`, false},
		{env, []string{"--config", missing}, missing, false},
	} {
		got := weir(t, tc.env, append([]string{"doctor"}, tc.args...)...)
		if text := got.stdout + got.stderr; got.code == 0 || !strings.Contains(text, tc.want) || strings.Contains(text, " options ") == tc.asks {
			t.Errorf("%q %q: %+v, want %q", tc.env, tc.args, got, tc.want)
		}
	}
}

// The doctor names rules and versions that differ between the nodes that the asked node knows, and says what to do. A node that is gone has none.
func TestDoctorNamesNodesThatDiffer(t *testing.T) {
	fake := &fakeNode{id: "a"}
	address := listen(t, fake)
	member := func(id, hash, version string) *weirv1.Node {
		return &weirv1.Node{Id: id, Address: address, State: weirv1.NodeState_NODE_STATE_READY, RulesHash: hash, Version: version, Member: true, Reachable: true}
	}
	const (
		rules    = "warning  rules   the nodes have different rules: 3f2a (a), 77e0 (b); to do: give all nodes the same files in --rules, or none; if a change has just been made, ask again\n"
		versions = "warning  versions  the nodes run v1.0.0 (a), v1.1.0 (b); to do: end the upgrade: restart the nodes of the older version with the newer one\n"
	)
	for want, nodes := range map[string][]*weirv1.Node{
		rules:    {member("a", "3f2a", ""), member("b", "77e0", ""), member("c", "", "")},
		versions: {member("a", "3f2a", "v1.0.0"), member("b", "3f2a", "v1.1.0"), member("c", "", "")},
		"":       {member("a", "3f2a", "v1.0.0"), member("b", "3f2a", "v1.0.0"), member("c", "", "")},
	} {
		fake.nodes = &weirv1.ListNodesResponse{Nodes: nodes}
		got := weir(t, nil, "doctor", "--node", address)
		text := got.stdout[strings.LastIndex(got.stdout, "node c"):]
		if _, rest, _ := strings.Cut(text, "\n"); rest != want {
			t.Errorf("behind the last node is %q, want %q in %+v", rest, want, got)
		}
	}
}
