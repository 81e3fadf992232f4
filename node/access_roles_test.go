package node

import (
	"testing"

	"github.com/weirlimit/weir/api"
)

// Every method that a node serves over gRPC has its role in the table of package api.
func TestEveryMethodHasARole(t *testing.T) {
	t.Parallel()
	n, err := build(t.Context(), Network{}, testOptions(t), quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	methods := 0
	for service, info := range n.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			methods++
			if _, known := api.RoleOf("/" + service + "/" + m.Name); !known {
				t.Errorf("/%s/%s has no role: missing in needs, in api/access.go", service, m.Name)
			}
		}
	}
	if methods < 30 {
		t.Errorf("only %d methods", methods)
	}
}
