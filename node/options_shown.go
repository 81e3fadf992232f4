package node

import (
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// redacted stands where a secret is left out.
const redacted = "REDACTED"

// Value is the value of an option.
type Value struct {
	// Name is the option as flags and files spell it, such as "etcd-listen".
	Name string
	// Text is the value as flags take it, a list with commas in between. Secrets in it are replaced by REDACTED.
	Text string
	// Changed says that it is another value than the default.
	Changed bool
}

// Values returns all options in the order of their fields, with defaults filled and without secrets.
func (o Options) Values() []Value {
	o = o.WithDefaults()
	initial := texts(Options{GRPC: o.GRPC, ID: o.ID}.WithDefaults())
	initial["grpc"], initial["id"] = defaultGRPC, Options{GRPC: o.GRPC}.WithDefaults().ID
	var values []Value
	fields := reflect.ValueOf(o)
	for i := range fields.NumField() {
		name := optionName(fields.Type().Field(i).Name)
		text := textOf(fields.Field(i).Interface())
		values = append(values, Value{Name: name, Text: o.shown(name, text), Changed: text != initial[name]})
	}
	return values
}

// texts returns all values of o by the names of the options, secrets included.
func texts(o Options) map[string]string {
	all := make(map[string]string)
	fields := reflect.ValueOf(o)
	for i := range fields.NumField() {
		all[optionName(fields.Type().Field(i).Name)] = textOf(fields.Field(i).Interface())
	}
	return all
}

// wordEnd matches the end of a word within the name of a field.
var wordEnd = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])`)

// optionName returns the option of a field of Options: etcd-listen of EtcdListen.
func optionName(field string) string {
	for _, first := range []string{"TLS", "XDS", "RLS"} {
		if rest, found := strings.CutPrefix(field, first); found {
			return strings.ToLower(first) + "-" + optionName(rest)
		}
	}
	return strings.ToLower(wordEnd.ReplaceAllString(field, "$1$3-$2$4"))
}

// textOf returns the value of a field of Options as flags take it.
func textOf(value any) string {
	switch v := value.(type) {
	case []string:
		return strings.Join(v, ",")
	case time.Duration:
		return v.String()
	case Bytes:
		if exact, err := humanize.ParseBytes(v.String()); err == nil && exact == uint64(v) {
			return v.String()
		}
		return strconv.FormatInt(int64(v), 10)
	}
	return fmt.Sprint(value)
}

// shown returns the text of an option without secrets. Files of secrets are named: their content is no option.
func (o Options) shown(name, text string) string {
	switch name {
	case "xds-headers":
		return strings.Join(withoutValues(o.XDSHeaders, ":"), ",")
	case "xds-metadata":
		return strings.Join(withoutValues(o.XDSMetadata, "="), ",")
	case "trace-endpoint":
		u, err := url.Parse(text)
		if err != nil {
			return redacted
		}
		base := url.URL{Scheme: u.Scheme, Host: u.Host}
		if base.String() == text {
			return text
		}
		return base.JoinPath(redacted).String() // a collector's token may stand in each of the other parts
	}
	return text
}

// withoutValues returns pairs with REDACTED for each value.
func withoutValues(pairs []string, separator string) (shown []string) {
	for _, pair := range pairs {
		name, _, _ := strings.Cut(pair, separator)
		shown = append(shown, name+separator+redacted)
	}
	return shown
}

// Options implements api.Status.
func (n *node) Options() (options []*weirv1.Option) {
	for _, v := range n.opts.Values() {
		options = append(options, &weirv1.Option{Name: v.Name, Value: v.Text, Changed: v.Changed})
	}
	return options
}
