package node

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// acceptOfPrometheus is the Accept header of a Prometheus that scrapes native histograms.
const acceptOfPrometheus = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6," +
	"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4," +
	"text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"

// nativeSchema is the schema of buckets that grow by at most 1.1: by 2^(2^-3).
const nativeSchema = 3

// A Prometheus that asks for protobuf gets the latencies as native histograms. The id of a caller's trace is an exemplar of them.
func TestNativeHistograms(t *testing.T) {
	t.Parallel()
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	_, url := collect(t)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte(oneAYear), 0o600); err != nil {
		t.Fatal(err)
	}
	first := testOptions(t)
	first.Rules, first.TraceEndpoint = rules, url
	info, _, _ := start(t, first)
	second := testOptions(t)
	second.ID, second.Rules, second.Etcd = "b", rules, []string{info.Etcd}
	start(t, second)
	client := new(http.Client)
	defer client.CloseIdleConnections()
	var scraped map[string]*dto.MetricFamily
	for hung, user := time.Now().Add(time.Minute), 0; observations(scraped["weir_replication_duration_seconds"]) == 0; user++ {
		if time.Now().After(hung) {
			t.Fatal("no standby has acknowledged anything")
		}
		checkTraced(t, client, info, trace, fmt.Sprint("user", user))
		scraped = scrapeProtobuf(t, client, info)
	}
	for _, name := range []string{"weir_check_duration_seconds", "weir_call_duration_seconds", "weir_replication_duration_seconds"} {
		if observations(scraped[name]) == 0 {
			t.Errorf("%s has no observations: %v", name, scraped[name])
		}
		for _, m := range scraped[name].GetMetric() {
			h := m.GetHistogram()
			if h.Schema == nil || h.GetSchema() != nativeSchema || h.GetSampleCount() > 0 && len(h.GetPositiveSpan()) == 0 {
				t.Errorf("%s is no native histogram of schema %d: %v", name, nativeSchema, m)
			}
		}
	}
	if f := scraped["weir_check_duration_seconds"]; !hasExemplar(f, "api", "check", trace) {
		t.Errorf("no exemplar has the trace %s: %v", trace, f)
	}
	if f := scraped["weir_call_duration_seconds"]; !hasExemplar(f, "call", "POST /v1/check", trace) {
		t.Errorf("no exemplar has the trace %s: %v", trace, f)
	}
}

// checkTraced asks for a check, as a caller that traces it.
func checkTraced(t *testing.T, client *http.Client, info Info, trace, user string) {
	t.Helper()
	body := fmt.Sprintf(`{"identifier_type":"user","identifier":%q}`, user)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+info.HTTP+"/v1/check", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s, %v", resp.Status, text, err)
	}
}

// scrapeProtobuf returns the metrics of a node as Prometheus reads them, by their names.
func scrapeProtobuf(t *testing.T, client *http.Client, info Info) map[string]*dto.MetricFamily {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+info.HTTP+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", acceptOfPrometheus)
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	format := expfmt.ResponseFormat(resp.Header)
	if format.FormatType() != expfmt.TypeProtoDelim {
		t.Fatalf("the metrics are %q, not protobuf", resp.Header.Get("Content-Type"))
	}
	scraped := make(map[string]*dto.MetricFamily)
	for d := expfmt.NewDecoder(resp.Body, format); ; {
		f := new(dto.MetricFamily)
		if err := d.Decode(f); errors.Is(err, io.EOF) {
			return scraped
		} else if err != nil {
			t.Fatal(err)
		}
		scraped[f.GetName()] = f
	}
}

// observations returns how many a histogram has, with all labels.
func observations(f *dto.MetricFamily) (n uint64) {
	for _, m := range f.GetMetric() {
		n += m.GetHistogram().GetSampleCount()
	}
	return n
}

// hasExemplar reports whether the native histogram with that label has an exemplar of the trace.
func hasExemplar(f *dto.MetricFamily, label, value, trace string) bool {
	is := func(p *dto.LabelPair, name, value string) bool { return p.GetName() == name && p.GetValue() == value }
	return slices.ContainsFunc(f.GetMetric(), func(m *dto.Metric) bool {
		return slices.ContainsFunc(m.GetLabel(), func(p *dto.LabelPair) bool { return is(p, label, value) }) &&
			slices.ContainsFunc(m.GetHistogram().GetExemplars(), func(e *dto.Exemplar) bool {
				return slices.ContainsFunc(e.GetLabel(), func(p *dto.LabelPair) bool { return is(p, "trace_id", trace) })
			})
	})
}
