package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/reflect/protoreflect"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// services are the files of the public API.
var services = []protoreflect.FileDescriptor{
	weirv1.File_weir_v1_rate_limiter_proto, weirv1.File_weir_v1_health_proto,
	weirv1.File_weir_v1_cluster_proto, weirv1.File_weir_v1_config_proto,
}

// byHand are the methods that gateway.yaml does not have: served by a handler of package api, or,
// if empty, over gRPC only.
var byHand = map[string]string{
	"RateLimiterConfig.WatchRules": "GET /v1/rules:watch",
	"RateLimiter.StreamRateLimits": "",
	"Cluster.ListAudit":            "",
	"Cluster.GetRuleCounts":        "",
	"Cluster.CreateAccessToken":    "",
	"Cluster.ListAccessTokens":     "",
	"Cluster.RevokeAccessToken":    "",
}

// commands has, for each method, the command of weir that calls it, or none.
var commands = map[string]string{
	"RateLimiter.CheckRateLimit":         "weir check",
	"RateLimiter.CheckRateLimitBatch":    "weir bench grpc",
	"RateLimiter.StreamRateLimits":       "weir bench grpc",
	"RateLimiter.GetRateLimitStatus":     "weir status",
	"RateLimiter.ExplainRateLimit":       "weir explain",
	"RateLimiter.ExplainDescriptors":     "weir explain",
	"RateLimiterHealth.GetHealthStatus":  "", // probes and metrics say the same
	"RateLimiterHealth.ResetRateLimit":   "weir reset",
	"RateLimiterHealth.ResetDescriptors": "weir reset",
	"Cluster.ListNodes":                  "weir nodes",
	"Cluster.GetRing":                    "weir ring",
	"Cluster.DrainNode":                  "weir drain",
	"Cluster.RemoveNode":                 "weir nodes remove",
	"Cluster.ImportView":                 "weir view import",
	"Cluster.ListTopKeys":                "weir top",
	"Cluster.GetRuleCounts":              "weir rules promote",
	"Cluster.GetOptions":                 "weir doctor",
	"Cluster.ListAudit":                  "weir audit",
	"Cluster.CreateAccessToken":          "weir tokens create",
	"Cluster.ListAccessTokens":           "weir tokens list",
	"Cluster.RevokeAccessToken":          "weir tokens revoke",
	"RateLimiterConfig.CreateRateLimit":  "", // weir rules apply changes several at once
	"RateLimiterConfig.UpdateRateLimit":  "",
	"RateLimiterConfig.DeleteRateLimit":  "weir rules delete",
	"RateLimiterConfig.GetRateLimit":     "weir rules get",
	"RateLimiterConfig.ListRateLimits":   "weir rules list",
	"RateLimiterConfig.ApplyRules":       "weir rules apply",
	"RateLimiterConfig.WatchRules":       "",
}

// endpoint is one method of the public API.
type endpoint struct {
	name    string // such as "RateLimiter.CheckRateLimit"
	method  protoreflect.MethodDescriptor
	binding string // such as "POST /v1/check"; empty if it is not served over HTTP
	bound   bool   // whether gateway.yaml or byHand has it
	comment string // in the .proto file, on one line
}

// readEndpoints returns all methods, from the files in the directory of api/weir/v1.
func readEndpoints(dir string) (all []endpoint, err error) {
	bindings, err := readBindings(filepath.Join(dir, "gateway.yaml"))
	if err != nil {
		return nil, err
	}
	for _, file := range services {
		source, err := os.ReadFile(filepath.Join(dir, filepath.Base(file.Path())))
		if err != nil {
			return nil, err
		}
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				m := service.Methods().Get(j)
				e := endpoint{name: string(service.Name()) + "." + string(m.Name()), method: m, comment: commentOf(string(source), string(m.Name()))}
				if e.binding, e.bound = bindings[string(m.FullName())]; !e.bound {
					e.binding, e.bound = byHand[e.name]
				}
				all = append(all, e)
			}
		}
	}
	return all, nil
}

// readBindings returns what gateway.yaml has, by the full name of the method.
func readBindings(name string) (map[string]string, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var gateway struct {
		HTTP struct{ Rules []map[string]string }
	}
	if err := yaml.Unmarshal(text, &gateway); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	all := make(map[string]string)
	plain := strings.NewReplacer("rate_limit.", "", "=**", "")
	for _, rule := range gateway.HTTP.Rules {
		for verb, path := range rule {
			if verb != "selector" && verb != "body" {
				all[rule["selector"]] = strings.ToUpper(verb) + " " + plain.Replace(path)
			}
		}
	}
	return all, nil
}

// commentOf returns the comment before a method.
func commentOf(source, method string) string {
	before, _, _ := strings.Cut(source, "\n  rpc "+method+"(")
	lines := strings.Split(before, "\n")
	var words []string
	for _, line := range slices.Backward(lines) {
		text, is := strings.CutPrefix(line, "  //")
		if !is {
			break
		}
		words = append(words, strings.TrimSpace(text))
	}
	slices.Reverse(words)
	return strings.Join(words, " ")
}

// summary is the first sentence of the comment, without the method's name.
func (e *endpoint) summary() string {
	first, _, _ := strings.Cut(e.comment, ". ")
	return strings.TrimSuffix(strings.TrimPrefix(first, string(e.method.Name())+" "), ".")
}

// writeEndpoints writes a table of all methods.
func writeEndpoints() (b []byte, err error) {
	all, err := readEndpoints(api)
	if err != nil {
		return nil, err
	}
	b = append(b, "| path | gRPC | what it does | command |\n|---|---|---|---|\n"...)
	for _, e := range all {
		path, command := "gRPC only", cmp.Or(commands[e.name], "none")
		if e.binding != "" {
			path = "`" + e.binding + "`"
		}
		if command != "none" {
			command = "`" + command + "`"
		}
		b = fmt.Appendf(b, "| %s | `%s` | %s | %s |\n", path, e.name, e.summary(), command)
	}
	return b, nil
}
