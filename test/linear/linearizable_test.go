package linear

import (
	"testing"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/internal/testform"
)

// Histories of all algorithms and groups are linearizable while nothing happens, while a node joins, and while one is drained.
// What is seeded into them is found.
func TestLinearizable(t *testing.T) {
	testform.NotWhileRacing(t)
	all := kinds()
	s := newStage(t, append(all, hot()), nil)
	t.Run("steady state", func(t *testing.T) {
		l := newLoad("steady", all, s.deciders()...)
		l.start(t)
		wait(3 * calm())
		l.finish()
		l.allDecided(t)
		l.verify(t)
		seedInto(t, l)
	})
	t.Run("hot keys", func(t *testing.T) {
		l := newLoad("hot", []*kind{hot()}, s.deciders()...)
		l.every = 0
		l.start(t)
		wait(2 * calm())
		l.stop()
		l.allDecided(t)
		l.verify(t)
		t.Logf("%d checks were allowed from lent tokens", l.sources[weirv1.Source_SOURCE_LENT])
	})
	t.Run("a node joins", func(t *testing.T) {
		l := newLoad("join", all, s.deciders()...)
		l.moving = true
		l.start(t)
		wait(calm())
		began := time.Now()
		s.join("d")
		t.Logf("it has its share after %v", time.Since(began).Round(time.Millisecond))
		l.with(s.nodes[len(s.nodes)-1].Client)
		wait(calm())
		l.finish()
		l.allDecided(t)
		l.verify(t)
	})
	t.Run("a node is drained", func(t *testing.T) {
		l := newLoad("drain", all, s.deciders()...)
		l.moving = true
		l.start(t)
		wait(calm())
		began := time.Now()
		s.drain(s.nodes[1], l)
		t.Logf("it is gone after %v", time.Since(began).Round(time.Millisecond))
		wait(calm())
		l.finish()
		l.allDecided(t)
		l.verify(t)
	})
}
