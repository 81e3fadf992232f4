package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/client"
)

const (
	// defaultNode is where a node serves gRPC if it is not told otherwise.
	defaultNode = "127.0.0.1:9090"
	// defaultAskTimeout is for a person, who would rather wait than fail.
	defaultAskTimeout = 2 * time.Second
)

// asking is what the commands that ask a node have in common.
type asking struct {
	node    string
	where   string // where node was given
	timeout time.Duration
	json    bool
}

// addTo defines the flags. A timeout that is set already is the default.
func (q *asking) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&q.node, "node", defaultNode, "`HOST:PORT` of the node's gRPC; also $WEIR_NODE")
	flags.BoolVar(&q.json, "json", false, "print JSON")
	flags.DurationVar(&q.timeout, "timeout", cmp.Or(q.timeout, defaultAskTimeout), "wait at most `DURATION` for the answer")
}

// ask calls the node. What goes wrong becomes an error with exit code 2, because
// 1 means a denied check.
func (a *app) ask(cmd *cobra.Command, q *asking, call func(context.Context, *client.Node) error) error {
	a.locate(cmd, q)
	if q.timeout <= 0 {
		return usageError(cmd, "--timeout: %v is not above 0", q.timeout)
	}
	c, err := client.NewNode(q.node)
	if err != nil {
		return &exitError{err: fmt.Errorf("%s: %w", q.where, err), code: 2}
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), q.timeout)
	defer cancel()
	err = call(ctx, c)
	if closeErr := c.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return &exitError{err: q.explain(err), code: 2}
	}
	return nil
}

// locate finds out which node is asked.
func (a *app) locate(cmd *cobra.Command, q *asking) {
	q.where = "--node"
	if address := a.env[variable("node")]; address != "" && !cmd.Flags().Changed("node") {
		q.node, q.where = address, variable("node")
	}
}

// explain says in one sentence what a failed call means for the person who made it.
func (q *asking) explain(err error) error {
	answer, ok := status.FromError(err)
	if !ok {
		return err
	}
	message := answer.Message()
	switch answer.Code() {
	case codes.Unavailable:
		return q.explainUnavailable(message)
	case codes.DeadlineExceeded:
		return fmt.Errorf("node %s did not answer within %v; wait longer with --timeout, "+
			"or name another with --node", q.node, q.timeout)
	case codes.InvalidArgument:
		return fmt.Errorf("node %s refuses the request: %s", q.node, message)
	case codes.NotFound, codes.AlreadyExists, codes.Aborted, codes.FailedPrecondition:
		return fmt.Errorf("node %s: %s", q.node, message)
	case codes.Unimplemented:
		return fmt.Errorf("what answers at %s is no node of weir, or one of another version: %s", q.node, message)
	}
	return fmt.Errorf("node %s: %s (%v)", q.node, message, answer.Code())
}

// explainUnavailable goes by the texts of gRPC and of the operating system: the
// code says no more than that there was no connection.
func (q *asking) explainUnavailable(message string) error {
	switch {
	case strings.Contains(message, "lookup error"):
		// Comes before the next: it may be the name server that refused.
		return fmt.Errorf("node %s cannot be reached: %s", q.node, message)
	case strings.Contains(message, "connection refused"):
		return fmt.Errorf("no node answers at %s: the connection was refused; "+
			"start one with \"weir serve\", or name another with --node", q.node)
	case strings.Contains(message, "zero addresses"):
		return fmt.Errorf("node %s cannot be reached: its name stands for no address", q.node)
	case strings.Contains(message, "server preface"):
		return fmt.Errorf("what answers at %s does not speak gRPC; --node wants the node's gRPC address", q.node)
	}
	for _, words := range []string{"connection", "transport", "error reading from server"} {
		if strings.Contains(message, words) { // gRPC's own
			return fmt.Errorf("node %s cannot be reached: %s", q.node, message)
		}
	}
	return fmt.Errorf("node %s: %s", q.node, message) // for somebody else, whom it asked
}

// print writes the text for a person or the message for a program.
func (a *app) print(asJSON bool, message proto.Message, text string) error {
	if asJSON {
		var err error
		if text, err = toJSON(message); err != nil {
			return err
		}
	}
	_, err := io.WriteString(a.stdout, text)
	return err
}

// toJSON returns one line with the fields' names as in the .proto files. Unlike
// protojson's own output it is the same every time.
func toJSON(message proto.Message) (string, error) {
	// Without the defaults, "allowed" would be missing from a denial.
	data, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(message)
	if err != nil {
		return "", err
	}
	var line bytes.Buffer
	if err := json.Compact(&line, data); err != nil {
		return "", err
	}
	line.WriteByte('\n')
	return line.String(), nil
}
