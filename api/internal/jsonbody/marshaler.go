package jsonbody

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"regexp"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/proto"
)

// maxEcho is how many bytes are said of a body that cannot be read.
const maxEcho = 512

// Marshaler is JSON as the gateway knows it, except that a body is read whole: what
// stands after its message is an error too, and errors say where in the body.
type Marshaler struct{ runtime.JSONPb }

// Marshal implements runtime.Marshaler. The same message is the same text in every build:
// protojson alone puts spaces in at random.
func (j *Marshaler) Marshal(v any) ([]byte, error) {
	text, err := j.JSONPb.Marshal(v)
	if err != nil {
		return nil, err
	}
	return Compact(text)
}

// Compact returns the JSON without spaces between its tokens.
func Compact(text []byte) ([]byte, error) {
	out := bytes.NewBuffer(make([]byte, 0, len(text)))
	err := json.Compact(out, text)
	return out.Bytes(), err
}

// jsonError matches what protojson says; it puts a no-break space after "proto:" at random, so that callers
// do not rely on the text.
var jsonError = regexp.MustCompile(`(?s)^proto:[\s\x{a0}]*(?:syntax error )?\(line (\d+):(\d+)\):[\s\x{a0}]*(.*)$`)

// TooLarge begins the error that is known by its text: the gateway makes every
// error a new one.
const TooLarge = "body: more than "

// ErrNoRoom is what a body returns when read, if the node has no room for it now. Its text ends that of NewDecoder's error.
var ErrNoRoom = errors.New("overloaded: too many requests have begun to arrive")

// NewDecoder implements runtime.Marshaler.
func (j *Marshaler) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		body, err := io.ReadAll(r)
		if err != nil {
			if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
				return fmt.Errorf("%s%d bytes", TooLarge, large.Limit)
			}
			return fmt.Errorf("body: read: %w", err)
		}
		if len(bytes.TrimSpace(body)) == 0 {
			return errors.New("body: must not be empty")
		}
		err = j.UnmarshalOptions.Unmarshal(body, message(v))
		if err == nil {
			return nil
		}
		if wrong := wrongEscape(body); wrong != nil {
			return wrong
		}
		if strings.HasSuffix(err.Error(), io.ErrUnexpectedEOF.Error()) {
			return fmt.Errorf("body: the JSON ends too early, after %d bytes", len(body))
		}
		return errors.New(describe(err.Error()))
	})
}

// message is what a body is read into. By gateway.yaml it is a message, or a field
// of one that has none yet.
func message(v any) proto.Message {
	if m, ok := v.(proto.Message); ok {
		return m
	}
	field := reflect.ValueOf(v).Elem()
	field.Set(reflect.New(field.Type().Elem()))
	return field.Interface().(proto.Message)
}

// describe turns what protojson says of a body into an error's message.
func describe(text string) string {
	where := "body: "
	if p := jsonError.FindStringSubmatch(text); p != nil {
		where, text = fmt.Sprintf("body: line %s, column %s: ", p[1], p[2]), p[3]
	}
	if len(text) > maxEcho {
		text = text[:maxEcho] + "..."
	}
	return where + strings.ToValidUTF8(text, "\uFFFD") // no answer can hold other bytes
}
