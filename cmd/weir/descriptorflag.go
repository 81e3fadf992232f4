package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// descriptors are what commands ask about in domains of envoyproxy/ratelimit's files.
type descriptors struct {
	texts []string
}

func (d *descriptors) addTo(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&d.texts, "descriptor", nil,
		"descriptor of Envoy's API, as `ENTRIES` in their order such as user=bob,path=/x, in place of KEY=VALUE; several flags make one request; write a comma in a value as \\,")
}

func (d *descriptors) given() bool { return len(d.texts) > 0 }

// request returns the descriptors of the flags. A command that has them takes no arguments.
func (d *descriptors) request(cmd *cobra.Command, args []string, domain string) (*weirv1.DescriptorsRequest, error) {
	if len(args) > 0 {
		return nil, usageError(cmd, "unexpected argument %q: --descriptor takes the place of KEY=VALUE; put the entry into a descriptor", args[0])
	}
	request := &weirv1.DescriptorsRequest{Domain: domain}
	for _, text := range d.texts {
		one, err := parseDescriptor(text)
		if err != nil {
			return nil, usageError(cmd, "--descriptor: %w", err)
		}
		request.Descriptors = append(request.Descriptors, one)
	}
	return request, nil
}

// parseDescriptor reads KEY=VALUE,KEY=VALUE. A backslash takes the next character as it is.
func parseDescriptor(text string) (*weirv1.Descriptor, error) {
	d := &weirv1.Descriptor{}
	for _, part := range splitEscaped(text) {
		key, value, ok := strings.Cut(part, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("%q: %q is not KEY=VALUE, such as user=bob", text, part)
		}
		d.Entries = append(d.Entries, &weirv1.DescriptorEntry{Key: key, Value: value})
	}
	return d, nil
}

// splitEscaped splits at commas without a backslash before them.
func splitEscaped(text string) []string {
	var parts []string
	var part strings.Builder
	escaped := false
	for _, r := range text {
		switch {
		case escaped:
			part.WriteRune(r)
			escaped = false
		case r == '\\':
			escaped = true
		case r == ',':
			parts = append(parts, part.String())
			part.Reset()
		default:
			part.WriteRune(r)
		}
	}
	return append(parts, part.String())
}
