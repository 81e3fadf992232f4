package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// jsonNumbers are the types of JSON that numbers of protocol buffers become.
var jsonNumbers = map[protoreflect.Kind]string{
	protoreflect.Int32Kind: "number", protoreflect.Uint32Kind: "number", protoreflect.DoubleKind: "number",
	protoreflect.Int64Kind: "string", protoreflect.Uint64Kind: "string",
}

// Of all numbers of one name, JSON has all as numbers or all as strings.
func TestNumbersHaveOneJSONType(t *testing.T) {
	first := make(map[protoreflect.Name]protoreflect.FieldDescriptor)
	var walk func(messages protoreflect.MessageDescriptors)
	walk = func(messages protoreflect.MessageDescriptors) {
		for i := range messages.Len() {
			fields := messages.Get(i).Fields()
			for j := range fields.Len() {
				f := fields.Get(j)
				if jsonNumbers[f.Kind()] == "" {
					continue
				}
				if other := first[f.Name()]; other == nil {
					first[f.Name()] = f
				} else if jsonNumbers[f.Kind()] != jsonNumbers[other.Kind()] {
					t.Errorf("%s is a %s in JSON, %s a %s", f.FullName(), jsonNumbers[f.Kind()], other.FullName(), jsonNumbers[other.Kind()])
				}
			}
			walk(messages.Get(i).Messages())
		}
	}
	for _, file := range []protoreflect.FileDescriptor{
		weirv1.File_weir_v1_rate_limiter_proto, weirv1.File_weir_v1_config_proto, weirv1.File_weir_v1_health_proto, weirv1.File_weir_v1_cluster_proto,
	} {
		walk(file.Messages())
	}
	if len(first) < 20 {
		t.Errorf("%d names of numbers", len(first))
	}
}

// A limit is a number in every message that has one.
func TestLimitIsANumber(t *testing.T) {
	f := newFixture(t, "domain: default\nrules: [{id: posts, per: [user], limits: [{limit: 5, window: 1m}]}]\n")
	withStore(t, f) // where that rule is created, too
	h := f.handler(t)
	const rule = `{"id":"posts","identifier_type":"user","limit":5,"window_seconds":60}`
	const check = `{"identifier_type":"user","identifier":"alice"}`
	if w := send(h, http.MethodPost, "/v1/rules", rule); w.Code != http.StatusOK {
		t.Fatal(w.Body)
	}
	for _, tc := range []struct {
		method, path, body string
		least              int // limits in the answer
	}{
		{"GET", "/v1/rules", "", 2},
		{"GET", "/v1/rules/default/posts", "", 2},
		{"PUT", "/v1/rules/default/posts", rule, 2},
		{"POST", "/v1/check", check, 1},
		{"POST", "/v1/check:batch", `{"requests":[` + check + `,` + check + `]}`, 2},
		{"POST", "/v1/status", check, 1},
		{"POST", "/v1/explain", check, 1},
		{"POST", "/v1/reset", check, 1},
	} {
		w := send(h, tc.method, tc.path, tc.body)
		var answer any
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Errorf("%s %s: %v: %s", tc.method, tc.path, err, w.Body)
		}
		limits := collect(answer, "limit")
		if len(limits) < tc.least {
			t.Errorf("%s %s has %d limits, not %d: %s", tc.method, tc.path, len(limits), tc.least, w.Body)
		}
		for _, limit := range limits {
			if limit != float64(5) {
				t.Errorf("%s %s: limit %#v in %s", tc.method, tc.path, limit, w.Body)
			}
		}
	}
	var document any
	if err := json.Unmarshal(openAPI, &document); err != nil {
		t.Fatal(err)
	}
	described := 0
	for _, property := range collect(document, "limit") {
		if schema, ok := property.(map[string]any); ok {
			described++
			if kind := fmt.Sprint(schema["type"]); kind != "integer" && !strings.Contains(fmt.Sprint(schema["$ref"]), "/schemas/") {
				t.Errorf("/openapi.json has a limit of type %s", kind)
			}
		}
	}
	if described < 4 {
		t.Errorf("/openapi.json has %d limits", described)
	}
}

// collect returns the values of a key at any depth.
func collect(tree any, key string) (values []any) {
	switch tree := tree.(type) {
	case map[string]any:
		for k, v := range tree {
			if k == key {
				values = append(values, v)
			}
			values = append(values, collect(v, key)...)
		}
	case []any:
		for _, v := range tree {
			values = append(values, collect(v, key)...)
		}
	}
	return values
}
