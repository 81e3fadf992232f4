// Command openapi writes api/openapi/openapi.json, the document that nodes serve, of what
// buf has generated from the .proto files and what is written by hand:
//
//	go run ./test/openapi
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/getkin/kin-openapi/openapi2"
	"github.com/getkin/kin-openapi/openapi2conv"
	"github.com/getkin/kin-openapi/openapi3"
	"go.yaml.in/yaml/v4"
)

//go:generate go run . ../../api/openapi

func main() {
	dir := "api/openapi"
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	document, err := build(dir)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "openapi.json"), document, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}

// build returns the document, which is valid.
func build(dir string) ([]byte, error) {
	generated, err := readGenerated(filepath.Join(dir, "generated.swagger.json"))
	if err != nil {
		return nil, err
	}
	byHand, err := readByHand(filepath.Join(dir, "handwritten.yaml"))
	if err != nil {
		return nil, err
	}
	document, err := json.MarshalIndent(merge(generated, byHand), "", "  ")
	if err != nil {
		return nil, err
	}
	parsed, err := openapi3.NewLoader().LoadFromData(document)
	if err != nil {
		return nil, err
	}
	return append(document, '\n'), parsed.Validate(context.Background())
}

// readGenerated returns a document of OpenAPI 2, in which generated ones are, as one of
// OpenAPI 3.
func readGenerated(path string) (map[string]any, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var old openapi2.T
	if err := json.Unmarshal(text, &old); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	document, err := openapi2conv.ToV3(&old)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if text, err = json.Marshal(document); err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	return tree, renameParameters(tree)
}

// renameParameters calls what is {rate_limit.id} in one path {id}, as in others: the gateway
// names parameters after the fields that they fill, and a document must not have two
// paths that differ in such names only.
func renameParameters(tree map[string]any) error {
	const field = "rate_limit."
	paths, ok := tree["paths"].(map[string]any)
	if !ok {
		return errors.New("no paths")
	}
	for path, item := range maps.Clone(paths) {
		renamed := strings.ReplaceAll(path, "{"+field, "{")
		operations, ok := item.(map[string]any)
		if renamed == path || !ok {
			continue
		}
		for _, operation := range operations {
			for _, p := range operation.(map[string]any)["parameters"].([]any) {
				parameter := p.(map[string]any)
				parameter["name"] = strings.TrimPrefix(parameter["name"].(string), field)
			}
		}
		delete(paths, path)
		merge(paths, map[string]any{renamed: operations})
	}
	return nil
}

func readByHand(path string) (map[string]any, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return tree, nil
}

// merge adds to a what b has, in maps of maps; where both have a value, b's stays.
func merge(a, b map[string]any) map[string]any {
	for key, value := range b {
		inner, isMap := value.(map[string]any)
		if old, wasMap := a[key].(map[string]any); isMap && wasMap {
			a[key] = merge(old, inner)
		} else {
			a[key] = value
		}
	}
	return a
}
