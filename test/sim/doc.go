// Package sim runs whole clusters in virtual time: 3 to 7 real nodes, with everything
// that a node is made of, over connections in memory and an etcd in memory, inside
// testing/synctest. A seed draws what happens to them while clients ask, and what the
// clients were told is held against the promises.
//
//	make sim SEEDS=1000   draws as many schedules, and tells which of them fail
//	make sim SEED=42      plays one again, and prints what happened when
//
// A seed fixes the schedule, what the clients ask and where the keys lie, not how goroutines take turns:
// a failure that hangs on that may take some plays to come back.
package sim
