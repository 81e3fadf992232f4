package node

import (
	"strings"
	"testing"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// A watch of the rules at one node is sent changes made at another, and its end.
func TestRulesAreWatchedAcrossNodes(t *testing.T) {
	t.Parallel()
	first, stop, ended := start(t, testOptions(t))
	opts := testOptions(t)
	opts.ID, opts.Etcd = "b", []string{first.Etcd}
	second, stopSecond, secondEnded := start(t, opts)
	watch, err := weirv1.NewRateLimiterConfigClient(dial(t, first)).WatchRules(t.Context(), &weirv1.WatchRulesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	const text = "domain: shop\nrules: [{id: r, limits: [{limit: 1, window: 1h}]}]\n"
	if _, err := weirv1.NewRateLimiterConfigClient(dial(t, second)).ApplyRules(t.Context(), &weirv1.ApplyRulesRequest{Rules: text}); err != nil {
		t.Fatal(err)
	}
	if changed, err := watch.Recv(); err != nil || changed.GetRevision() != 1 {
		t.Errorf("%v, %v", changed, err)
	}
	stopSecond()
	if err := <-secondEnded; err != nil {
		t.Error(err)
	}
	stop()
	if _, err := watch.Recv(); err == nil || !strings.Contains(err.Error(), "the node is stopping") {
		t.Errorf("at the end: %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
