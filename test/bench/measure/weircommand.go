package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Weir runs a command of weir that prints JSON, and returns the numbers in it under one
// name. A field's unit is its name, those of fields within it joined by dots; true is 1.
// Exit code 1, which says that what was looked for was not found, is no error.
func Weir(ctx context.Context, binary, name string, args ...string) (Results, error) {
	cmd := exec.CommandContext(ctx, binary, append(args, "--json")...)
	endTogether(cmd)
	out, err := cmd.Output()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("weir %s: %w", strings.Join(args, " "), context.Cause(ctx))
	case errors.As(err, &exit) && exit.ExitCode() != 1:
		return nil, fmt.Errorf("weir %s: %w: %s", strings.Join(args, " "), err, exit.Stderr)
	case err != nil && exit == nil:
		return nil, err
	}
	var report map[string]any
	if err := json.Unmarshal(out, &report); err != nil {
		return nil, fmt.Errorf("weir %s: %w", strings.Join(args, " "), err)
	}
	results := make(Results)
	results.addFields(name, "", report)
	return results, nil
}

func (r Results) addFields(name, prefix string, fields map[string]any) {
	for field, value := range fields {
		switch v := value.(type) {
		case float64:
			r.add(name, prefix+field, v)
		case bool:
			if v {
				r.add(name, prefix+field, 1)
			} else {
				r.add(name, prefix+field, 0)
			}
		case map[string]any:
			r.addFields(name, prefix+field+".", v)
		}
	}
}

// Build builds weir into a directory, and returns the binary's path.
func Build(ctx context.Context, dir string) (string, error) {
	binary := dir + "/weir"
	cmd := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/weir")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build weir: %w", err)
	}
	return binary, nil
}
