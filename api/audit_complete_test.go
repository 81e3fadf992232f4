package api

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/weirlimit/weir/internal/access"
	"github.com/weirlimit/weir/internal/audit"
)

// TestChangesNameThemselves calls each method that changes something, without any field: the audit log has its name, as
// a call that fails is recorded, too. A method that is not there needs its line in api/auditedcalls.go.
func TestChangesNameThemselves(t *testing.T) {
	var to bytes.Buffer
	f := newFixture(t, accessRules)
	f.audit = audit.New("here", &to)
	a, secrets := tokensOf(t, "admin")
	a.Audit = f.audit
	f.tap = a.Tap(f.Limiter.Tap)
	conn := f.dial(t)
	called := 0
	for method, n := range needs {
		if _, name, _ := strings.Cut(strings.TrimPrefix(method, "/weir.v1."), "/"); !n.changes && (n.role == access.Rules || n.role == access.Admin) &&
			strings.HasPrefix(method, "/weir.v1.") && !regexp.MustCompile("^(Get|List|Watch)").MatchString(name) {
			t.Errorf("%s: its line of needs, in api/access.go, lacks changes: true; if it changes nothing, its name begins with Get, List or Watch", method)
		}
		if !n.changes || !strings.HasPrefix(method, "/") || strings.HasPrefix(method, "/v1/") {
			continue // paths over HTTP lead to these methods
		}
		service, name, _ := strings.Cut(method[1:], "/")
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		m := found.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(name))
		to.Reset()
		_ = conn.Invoke(withToken(t.Context(), secrets["admin"]), method, dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output()))
		var e audit.Entry
		want := strings.TrimPrefix(service, "weir.v1.") + "." + name
		if err := json.Unmarshal(to.Bytes(), &e); err != nil || e.Action != want || e.Client != "admin" {
			t.Errorf("%s: the audit log has %q, want one line with the action %q: add it to api/auditedcalls.go", method, to.String(), want)
		}
		called++
	}
	if called < 8 {
		t.Errorf("%d methods change something", called)
	}
}
