package main

import (
	"bytes"
	"encoding/json"
	"io"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

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
