package main

import (
	"slices"
	"testing"
)

func TestUnknownVariables(t *testing.T) {
	tests := []struct {
		entry string
		want  []string
	}{
		{"WEIR_GRPC=x", nil},
		{"WEIR_CONFIG=x", nil},
		{"WEIR_NODE=x", nil},
		{"PATH=x", nil},
		{"WEIRD_THING=x", nil},
		{"WEIR_GPRC=x", []string{"WEIR_GPRC; did you mean WEIR_GRPC?"}},
		{"WEIR_DATADIR=x", []string{"WEIR_DATADIR; did you mean WEIR_DATA_DIR?"}},
		{"WEIR_QUOTA_FILE=x", []string{"WEIR_QUOTA_FILE"}},
		// A Kubernetes service named weir.
		{"WEIR_SERVICE_HOST=10.0.0.1", nil},
		{"WEIR_SERVICE_PORT=9090", nil},
		{"WEIR_SERVICE_PORT_GRPC=9090", nil},
		{"WEIR_PORT=tcp://10.0.0.1:9090", nil},
		{"WEIR_PORT_9090_TCP=tcp://10.0.0.1:9090", nil},
		{"WEIR_PORT_9090_TCP_PROTO=tcp", nil},
		{"WEIR_PORT_9090_TCP_PORT=9090", nil},
		{"WEIR_PORT_9090_TCP_ADDR=10.0.0.1", nil},
		// One named weir-http.
		{"WEIR_HTTP_SERVICE_HOST=10.0.0.1", nil},
		{"WEIR_HTTP_PORT=tcp://10.0.0.1:8080", nil},
		{"WEIR_HTTP_PORT_8080_TCP_ADDR=10.0.0.1", nil},
		// A person's guess, not a service.
		{"WEIR_PORT=9090", []string{"WEIR_PORT"}},
		{"WEIR_HTTP_PORT=8080", []string{"WEIR_HTTP_PORT"}},
	}
	for _, test := range tests {
		got := unknownVariables(newApp([]string{test.entry}, nil, nil).env)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", test.entry, got, test.want)
		}
	}
}
