package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimit/weir/rules"
)

// readFile returns the options in the configuration file that config names, by
// name. No file holds no options. It is strict: what it does not know it
// refuses, with file and line.
func readFile(config given) (map[string]given, error) {
	if config.text == "" {
		return nil, nil
	}
	data, err := os.ReadFile(config.text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", config.where, err)
	}
	return parseFile(config.text, data)
}

func parseFile(path string, data []byte) (map[string]given, error) {
	mapping, err := decodeMapping(path, data)
	if err != nil {
		return nil, err
	}
	var names []string
	isList := make(map[string]bool)
	for _, o := range options() {
		names = append(names, o.name)
		isList[o.name] = o.isList()
	}
	values := make(map[string]given)
	var problems []error
	problem := func(line int, format string, args ...any) {
		problems = append(problems, fmt.Errorf("%s:%d: "+format, append([]any{path, line}, args...)...))
	}
	lines := make(map[string]int)
	for i := 0; i+1 < len(mapping); i += 2 {
		key, value := mapping[i], mapping[i+1]
		list, known := isList[key.Value]
		if !known || key.Kind != yaml.ScalarNode {
			problem(key.Line, "unknown key %q%s", key.Value, didYouMean(key.Value, names))
			continue
		}
		if first := lines[key.Value]; first != 0 {
			problem(key.Line, "%s is given twice, first in line %d", key.Value, first)
			continue
		}
		lines[key.Value] = key.Line
		text, bad := scalars(value, list)
		if bad != "" {
			problem(key.Line, "%s: %s", key.Value, bad)
			continue
		}
		values[key.Value] = given{text, fmt.Sprintf("%s:%d: %s", path, key.Line, key.Value)}
	}
	return values, errors.Join(problems...)
}

// decodeMapping returns the keys and values, in turn, of the one mapping in data.
func decodeMapping(path string, data []byte) ([]*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	err := decoder.Decode(&document)
	if err == nil {
		err = decoder.Decode(&second)
		if err == nil {
			return nil, fmt.Errorf("%s:%d: a second document begins here, allowed is one", path, second.Line)
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, errors.New(rules.SyntaxProblem(path, data, err).String())
	}
	if len(document.Content) == 0 || document.Content[0].Tag == "!!null" {
		return nil, nil // empty, or nothing but comments
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: not a mapping of options, such as grpc: 127.0.0.1:9090", path, root.Line)
	}
	return root.Content, nil
}

// scalars returns a value as one would type it for a flag, or what is wrong with it.
func scalars(value *yaml.Node, list bool) (text, problem string) {
	if value.Kind == yaml.AliasNode {
		value = value.Alias
	}
	switch {
	case value.Kind == yaml.ScalarNode && value.Tag != "!!null":
		return value.Value, ""
	case value.Kind == yaml.ScalarNode:
		return "", "has no value; leave the line out for the default"
	case value.Kind != yaml.SequenceNode:
		return "", "is a mapping, allowed is a value"
	case !list:
		return "", "is a list, allowed is one value"
	}
	var items []string
	for _, item := range value.Content {
		text, problem := scalars(item, false)
		if problem != "" {
			return "", "an item " + problem
		}
		items = append(items, text)
	}
	return strings.Join(items, ","), ""
}
