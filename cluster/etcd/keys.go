package etcd

import (
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// checkName refuses what may not stand in a key.
func checkName(what, name string, longest int) error {
	if name == "" || len(name) > longest {
		return fmt.Errorf("%s %q has %d bytes, not 1 to %d", what, name, len(name), longest)
	}
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return fmt.Errorf("%s %q has a character that is no letter, digit, '.', '_' or '-'", what, name)
		}
	}
	return nil
}

// keys are where a cluster's data stand in etcd.
type keys struct {
	root, nodes, view, params, incarnations, rules, tokens string
}

func keysOf(cluster string) keys {
	root := "/weir/" + cluster + "/"
	return keys{
		root:         root,
		nodes:        root + "nodes/",
		view:         root + "view",
		params:       root + "params",
		incarnations: root + "incarnations/",
		rules:        root + "rules",
		tokens:       root + "tokens",
	}
}

// watched returns the range [from, to) of one watch that covers nodes, params,
// rules, tokens and view. Several watches would not tell in which order their events
// happened. Keys in between would come along and be ignored.
func (k keys) watched() (from, to string) { return k.nodes, k.view + "\x00" }

type keyValue = mvccpb.KeyValue
