package view

import (
	"fmt"
	"testing"

	"github.com/weirlimit/weir/ring"
)

// settledView returns a view in which each partition is where the plan wants it, and reports of that.
func settledView(b *testing.B, members int) (v *View, plan Plan, reports Reports) {
	b.Helper()
	params := ring.Params{Partitions: 1021, ReplicationFactor: 40, Load: 1.25}
	var all []Member
	for i := range members {
		all = append(all, Member{Life: Life{ID: fmt.Sprintf("node-%03d", i), Incarnation: 1}, Address: fmt.Sprintf("10.0.0.%d:9090", i)})
	}
	plan, err := PlanOf(params, &View{Members: all})
	if err != nil {
		b.Fatal(err)
	}
	v = First(all, plan)
	for p := range v.Partitions {
		v.Partitions[p].Standby = Life{ID: plan[p].Standby, Incarnation: 1}
	}
	for _, m := range all {
		reports = append(reports, Report{Life: m.Life, Adopted: v.Number, Settled: Set{0}, Complete: Set{0}})
	}
	return v, plan, reports
}

// BenchmarkNext has the writer look for a next view, of which there is none: it does so 20 times a second.
func BenchmarkNext(b *testing.B) {
	for _, members := range []int{3, 100} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			v, plan, reports := settledView(b, members)
			b.ReportAllocs()
			for b.Loop() {
				if next, _ := Next(v, Seen{Nodes: v.Members}, reports, plan); next != nil {
					b.Fatal("there is a next view")
				}
			}
		})
	}
}

// BenchmarkUnmarshal has a node read a view that another one has written.
func BenchmarkUnmarshal(b *testing.B) {
	for _, members := range []int{3, 100} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			v, _, _ := settledView(b, members)
			data, err := Marshal(v)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Unmarshal(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
