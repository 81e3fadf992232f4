// Package linear holds real nodes to linearizability: concurrent clients ask all nodes, record when they asked and what
// they were told, and porcupine searches for an order of the checks of each key in which one counter that decides one
// check after the other would have given the same answers. No check may be moved before its call or behind its return.
//
// # What is modelled
//
// The counter of the model is package algorithms itself, one step after the other, for each algorithm; and for groups
// several counters that count a check together or not at all. The histories are cut by key: a rule and its subject. A group
// of several rules is one history with all counters that its checks touch.
//
// An operation is one check: its tokens (negative ones give back), whether it only looks, and of the answer
//
//   - whether it was allowed: a denial without a reason is a violation, as a grant without room is;
//   - remaining_tokens. It is documented to be off by less than one percent among many callers. Limits are below 100
//     tokens here, so it is exact, of denied checks as of allowed ones. It shows each update that is lost or stale;
//   - the delay, in tokens that go before.
//
// # Time
//
// The owner reads its clock between call and return, and callers do not learn when. So nothing may depend on it: all
// windows last about a year, none ends within the test, and a bucket refills less than a token in days. The model decides at
// one instant. In TestTurningWindows time matters, and of the instants between call and return the model tries those that may differ:
// each one for algorithms whose decisions change at known instants, and multiples of a tenth of the time of a token for meters. A log is asked
// in bursts, so that no grant leaves it while a check is decided. What shorter times do is tested elsewhere, by the twins of
// package algorithms and by test/sim.
//
// The tests themselves run in real time, each for seconds: the interleavings are those of real nodes and connections on all
// processors, which a bubble would order. test/sim searches orders in virtual time.
//
// # What is not exact
//
//   - A check without an answer, or with one that no node has decided (SOURCE_FAIL_OPEN), may have been counted or not, at
//     any time after its call. Only a kill may cause one.
//   - A counter whose tokens are lent to nodes (limits of 200 and more) may be denied while nodes hold half a percent of the
//     limit, and its remaining_tokens are not held to. Its clients only take.
//   - A group over several nodes that was contended for longer than the nodes wait is denied, and told to come again within a quarter of a
//     second. Such a denial is not recorded, as it says nothing of the limit. While partitions move no denial of such
//     a group is, because new owners do not know what is tentative. Its remaining_tokens may count tentative takes, and are not held to.
//   - A kill may lose what the owner granted last, within the bound of docs/failures.md: the model gives back as many tokens at most, once. A
//     check that was in progress then may be counted twice.
package linear
