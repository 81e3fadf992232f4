package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/test/process"
)

// sendHTTP sends checks over HTTP. At a rate they are sent by the clock; those for which no caller is free are not sent.
func sendHTTP(t *testing.T, nodes []*process.Node, l demand) (sum offered) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: l.callers}}
	defer client.CloseIdleConnections()
	due := make(chan int)
	var mu sync.Mutex
	sum.Failures = make(map[string]int64)
	var callers sync.WaitGroup
	for range l.callers {
		callers.Go(func() {
			for i := range due {
				source, failure := checkHTTP(t.Context(), client, nodes[i%len(nodes)].HTTP, i, l.timeout)
				mu.Lock()
				switch {
				case failure != "":
					sum.Errors++
					sum.Failures[failure]++
				case source == "SOURCE_FAIL_OPEN":
					sum.FailOpen++
					fallthrough
				default:
					sum.Checks++
				}
				mu.Unlock()
			}
		})
	}
	begin := time.Now()
	sendByTheClock(l, due)
	close(due)
	callers.Wait()
	sum.Seconds = time.Since(begin).Seconds()
	return sum
}

// sendByTheClock hands out numbers: so many a second that a caller is free for, or as fast as callers are.
func sendByTheClock(l demand, due chan<- int) {
	over := time.After(l.during)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	sent := 0
	for begin := time.Now(); ; {
		if l.rate == 0 {
			select {
			case <-over:
				return
			case due <- sent:
				sent++
			}
			continue
		}
		select {
		case <-over:
			return
		case <-tick.C:
		}
		for ; float64(sent) < l.rate*time.Since(begin).Seconds(); sent++ {
			select {
			case due <- sent:
			default:
			}
		}
	}
}

// checkHTTP returns who has decided a check, or else how it failed: by the name of a code of gRPC, as weir bench has it.
func checkHTTP(ctx context.Context, client *http.Client, address string, i int, timeout time.Duration) (source, failure string) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	body := fmt.Sprintf(`{"identifier_type":"user","identifier":"u%d"}`, i%20_000)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v1/check", strings.NewReader(body))
	if err != nil {
		return "", "Internal"
	}
	resp, err := client.Do(req)
	if err == nil {
		defer resp.Body.Close()
		var answer struct{ Source string }
		err = json.NewDecoder(resp.Body).Decode(&answer)
		switch {
		case err == nil && resp.StatusCode == http.StatusServiceUnavailable:
			return "", "ResourceExhausted"
		case err == nil && answer.Source == "":
			return "", "Unknown"
		}
		source = answer.Source
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "", "DeadlineExceeded"
	case err != nil:
		return "", "Unavailable"
	}
	return source, ""
}
