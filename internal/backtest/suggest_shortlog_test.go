package backtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/algorithms"
)

// poissonLog is the traffic of 60 keys, each with 30 lines in a minute by chance.
func poissonLog(length time.Duration) []byte {
	r := rand.New(rand.NewPCG(18, 8))
	begin := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	var lines []sampleLine
	for u := range 60 {
		for at := begin; ; {
			at = at.Add(time.Duration(r.ExpFloat64() * float64(2*time.Second)))
			if at.Sub(begin) > time.Hour {
				break
			}
			if at.Sub(begin) <= length { // the same traffic in every length
				lines = append(lines, sampleLine{at, fmt.Sprintf("{\"time\":%q,\"user\":\"u%02d\"}\n", at.Format("2006-01-02T15:04:05.000Z07:00"), u)})
			}
		}
	}
	return inOrder(lines)
}

// A limit that is found in a short log denies little of what comes later.
func TestSuggestOfShortLogs(t *testing.T) {
	hour := poissonLog(time.Hour)
	for _, c := range []struct {
		length time.Duration
		window time.Duration
		limits int
		note   string
	}{
		{50 * time.Second, time.Minute, 0, "No limit of 1m can be told: the log covers only 49s."},
		{2 * time.Minute, time.Minute, 1, "The log covers only 1m59s: too little for a token_bucket of 1m, which takes 20m."},
		{10 * time.Minute, time.Minute, 1, "The log covers only 9m59s: too little for a token_bucket of 1m, which takes 20m."},
		{21 * time.Minute, time.Minute, 1, ""},
		{time.Hour, time.Minute, 1, ""},
		{55 * time.Minute, time.Hour, 0, "No limit of 1h can be told: the log covers only 54m59s."},
		{time.Hour, time.Hour, 1, "The log covers only 59m59s: too little for a token_bucket of 1h, which takes 20h."},
	} {
		config := SuggestConfig{Config: Config{Format: JSON}, Per: [][]string{{"user"}}, Windows: []time.Duration{c.window}, Headroom: 20}
		_, found := suggestionOf(t, config, poissonLog(c.length))
		r := found.Rules[0]
		if len(r.Limits) != c.limits || c.note == "" && len(r.Notes) > 0 || c.note != "" && !slices.Contains(r.Notes, c.note) {
			t.Errorf("%v, limits of %v: %+v, %q", c.length, c.window, r.Limits, r.Notes)
		}
		if c.limits == 0 {
			continue
		}
		if share := shareDenied(t, config.Config, hour, found); share > 0.01 {
			t.Errorf("%v: %+v denies a share of %v in an hour", c.length, r.Limits[0], share)
		}
	}
	config := SuggestConfig{Config: Config{Format: JSON}, Per: [][]string{{"user"}}, Algorithm: algorithms.TokenBucket}
	_, found := suggestionOf(t, config, poissonLog(10*time.Minute))
	if r := found.Rules[0]; len(r.Limits) > 0 || !strings.Contains(strings.Join(r.Notes, " "), "No token_bucket of 1m can be told: the log covers only 9m59s, and it takes 20m.") {
		t.Errorf("%+v, %q", r.Limits, r.Notes)
	}
}

// shareDenied returns which share of a log the suggested rules deny.
func shareDenied(t *testing.T, c Config, log []byte, found *Suggestion) float64 {
	t.Helper()
	run := replayOf(t, c, log, found.Documents(100)).Result()
	return float64(run.Denied) / float64(run.Decided())
}
