package node

// metricSection is a part of docs/reference/metrics.md.
type metricSection struct {
	heading string
	about   string // below the heading; may be empty
	metrics []metricAdvice
	after   string // below the table; may be empty
}

// metricAdvice says what to do about a metric. What else the page says of it, the metric says itself.
type metricAdvice struct{ name, advice string }

// metricSections have every metric of a node once.
var metricSections = []metricSection{
	{heading: "Checks", about: "Rate, errors and duration of what clients ask.", metrics: []metricAdvice{
		{"weir_checks_total", "Any `fail_open`, `fail_closed` or `local`: [undecided](../operations/alerts/checks-undecided.md). `overloaded`: [add nodes](../operations/alerts/overloaded.md). `no_rule`: nothing limits these checks; write a rule if something should."},
		{"weir_check_duration_seconds", "High: look for a slow node or network, as in [WeirLatencyHigh](../operations/alerts/latency-high.md). Each call of `check` is one over gRPC or over HTTP."},
		{"weir_check_errors_total", "`InvalidArgument`: correct the caller. `PermissionDenied`: give it the role. `ResourceExhausted`: [add nodes](../operations/alerts/overloaded.md). `Canceled` and `DeadlineExceeded`: the caller did not wait."},
		{"weir_calls_total", "`PermissionDenied`, 401 and 403: give the caller its role. `Unavailable` and 503: look at etcd and at the node's load. `other`: correct the caller's path."},
		{"weir_call_duration_seconds", "High for changes of rules or tokens: [etcd](../operations/etcd.md) is slow. High for `GET /v1/top`: a member does not answer."},
		{"weir_rule_limits_total", "Tune the rule that denies too much. `would_deny` says what enforcing it would do. `undecided`: see [undecided](../operations/alerts/checks-undecided.md)."},
		{"weir_refused_calls_total", "Above 0 for long: [add nodes](../operations/alerts/overloaded.md)."},
		{"weir_accepted_share", "Below 1 on one node: look at its machine. On all: [add nodes](../operations/alerts/overloaded.md)."},
		{"weir_lateness_seconds", "Above a quarter of `--peer-timeout` the node refuses calls. Look for other processes, and for limits of the container."},
		{"weir_decision_log_lines_total", "Falls to 0 under load: look at the log of the node. See the [decision log](decision-log.md)."},
		{"weir_decision_log_dropped_lines_total", "Above 0: log fewer checks, or write to a faster disk, as in [the decision log](decision-log.md#turn-it-on)."},
		{"weir_unread_bytes", "Grows: a client does not read its streams. Correct the client."},
		{"weir_unfinished_bytes", "Near 32 MiB: clients begin to send much and do not finish. Find them by their connections."},
		{"weir_unfinished_calls", "Above 2,048: clients hold calls open, and connections with more than their share of 4,096 are refused more."},
		{"weir_calls_under_way", "Above 8,192: the node is late, or clients do not read their answers. Connections with more than their share of 16,384 are refused more."},
		{"weir_connections_late_total", "Above 0: clients reset their own calls, or have them refused, a thousand times a second. Give these longer deadlines, or keep them away."},
		{"weir_unfinished_ended_total", "Above 0: clients begin messages and do not finish them. Correct them, or keep them away."},
		{"weir_streams_unread_total", "Above 0: a client does not read its streams. Correct the client."},
	}},
	{heading: "Counters and memory", metrics: []metricAdvice{
		{"weir_counters", "A sudden rise is often a flood of invented names: [attacks](../threats.md#floods-of-names)."},
		{"weir_counters_bytes", "Compare it with `weir_counters_limit_bytes`: [WeirMemoryNearlyFull](../operations/alerts/memory-nearly-full.md)."},
		{"weir_counters_limit_bytes", "Nothing: it is an option."},
		{"weir_counters_expired_total", "Nothing: it is how memory comes back."},
		{"weir_counters_evicted_total", "Above 0: raise `--counter-memory`, as in [WeirCountersEvicted](../operations/alerts/counters-evicted.md)."},
		{"weir_counters_shared_total", "Above 0: raise `--counter-memory`, as in [WeirCountersShared](../operations/alerts/counters-shared.md)."},
		{"weir_snapshot_bytes", "Give `--data-dir` room for two of them."},
		{"weir_snapshot_counters", "Much less than `weir_counters`: most counters are empty again before `--snapshot-min-window`."},
		{"weir_snapshot_failures_total", "Above 0: look at the disk, as in [WeirSnapshotsFail](../operations/alerts/snapshots-fail.md)."},
		{"weir_snapshot_timestamp_seconds", "Older than two times `--snapshot-every`: look at the disk."},
	}},
	{heading: "Rules", metrics: []metricAdvice{
		{"weir_rules_loaded", "0: nothing is limited."},
		{"weir_rules_info", "More than one hash for minutes: [WeirRulesDiffer](../operations/alerts/rules-differ.md)."},
		{"weir_rules_load_total", "`failure`: a change was refused, as in [WeirRulesRefused](../operations/alerts/rules-refused.md)."},
		{"weir_rules_last_load_success", "0: correct the rules, as in [WeirRulesRefused](../operations/alerts/rules-refused.md)."},
		{"weir_xds_connected", "0 for minutes: look at the xDS server and at its certificates, as in [Envoy Gateway](../envoy-gateway.md#see-that-it-works)."},
	}},
	{heading: "The node and its cluster", metrics: []metricAdvice{
		{"weir_build_info", "More than one version for days: end the upgrade."},
		{"weir_ready", "0 for minutes: [WeirNotReady](../operations/alerts/not-ready.md)."},
		{"weir_health_problems", "Above 0: read `GET /v1/health`. It names each problem, and what to do."},
		{"weir_view_number", "Differs between nodes: [WeirViewsDiffer](../operations/alerts/views-differ.md)."},
		{"weir_members", "Less than the nodes that run: [WeirMemberMissing](../operations/alerts/member-missing.md). More than Prometheus scrapes: [WeirNodesNotScraped](../operations/alerts/nodes-not-scraped.md)."},
		{"weir_decision_lease_seconds", "0: [WeirNoDecisionLease](../operations/alerts/no-decision-lease.md). Up to 1.5 is as it should be."},
		{"weir_clock_difference_seconds", "Above 0.5: [WeirClocksDiffer](../operations/alerts/clocks-differ.md)."},
		{"weir_certificate_expiry_timestamp_seconds", "Less than a week away: [WeirCertificateExpires](../operations/alerts/certificate-expires.md)."},
	}},
	{heading: "etcd", metrics: []metricAdvice{
		{"weir_etcd_up", "0: mend etcd, as in [WeirEtcdDown](../operations/alerts/etcd-down.md)."},
		{"weir_etcd_alarm", "1: [WeirEtcdAlarm](../operations/alerts/etcd-alarm.md)."},
		{"weir_etcd_failures_total", "Rises while `weir_etcd_up` is 1: etcd is slow, or changes its leader. Look at its disk."},
		{"weir_etcd_leases_lost_total", "Above 0: this node did not reach etcd for seconds, or was stopped."},
		{"weir_etcd_lists_total", "`cut` often: connections to etcd break. `compacted`: the node is too slow, or etcd compacts too early. `failed`: etcd does not answer."},
	}, after: "`reason` is `first`, `scheduled`, `cut` (the watch has ended), `compacted` (it lagged behind) or `failed` (the last list got no answer)."},
	{heading: "Between nodes", metrics: []metricAdvice{
		{"weir_peer_breaker_open", "1: [WeirPeerUnreachable](../operations/alerts/peer-unreachable.md)."},
		{"weir_forwarded_total", "`late` and `breaker_open`: look at that peer and the network. `overflow`: the peer has too much to do."},
		{"weir_forwarded_frames_total", "Nothing: it is for the number of checks per message."},
		{"weir_redirected_total", "Rises while partitions move. For long: see `weir_view_number`."},
		{"weir_standby_checks_total", "Rises while an owner does not answer: see `weir_peer_breaker_open`."},
		{"weir_relayed_total", "Rises while two nodes do not reach each other: look at the network between them."},
		{"weir_late_dropped_total", "Rises: this node is late. See `weir_lateness_seconds`."},
		{"weir_late_undone_total", "Rises: peers answer late. See their `weir_lateness_seconds`."},
		{"weir_uncertain_total", "Rises while connections break: look at the network."},
		{"weir_lost_returns_total", "Rises while a peer is not reached. The counters are right again after one window."},
		{"weir_contended_total", "Often: many checks with several limits are denied at once. That costs time, and is exact."},
	}},
	{heading: "Hot counters", metrics: []metricAdvice{
		{"weir_remembered_denials_total", "Nothing: these cost no call to another node."},
		{"weir_lent_checks_total", "Nothing: these cost no call to another node."},
		{"weir_lent_tokens_total", "Nothing: token leases make hot counters cheap."},
		{"weir_returned_tokens_total", "Nearly as many as lent: token leases do not help. `--lend-nothing` ends them."},
		{"weir_used_tokens_total", "Nothing: lent tokens are used."},
		{"weir_denial_lease_waits_total", "Often: resets wait for up to 20 ms. `--forget-denials` ends that."},
	}},
	{heading: "Partitions, copies and standbys", metrics: []metricAdvice{
		{"weir_partitions", "`wanted` for minutes: [WeirPartitionsMissing](../operations/alerts/partitions-missing.md)."},
		{"weir_partitions_handed_over_total", "Rises without a change of nodes: nodes come and go. See `weir_view_number`."},
		{"weir_partitions_received_total", "As for `weir_partitions_handed_over_total`."},
		{"weir_partitions_continued_total", "Rises: a node died. Find out why."},
		{"weir_partitions_displaced_total", "Rises: this node was believed dead. It was stopped, or cut off."},
		{"weir_waived_views_total", "Above 0: [WeirMajorityWaived](../operations/alerts/majority-waived.md)."},
		{"weir_standby_lag_seconds", "Above 1: [WeirReplicationLate](../operations/alerts/replication-late.md)."},
		{"weir_replication_duration_seconds", "High: the standby or the network is slow."},
		{"weir_replication_failures_total", "Rises: the standby or the network breaks."},
		{"weir_changes_restarted_total", "Rises under load: changes come faster than they are sent. Add nodes."},
		{"weir_provisional_grants_total", "Rises while an owner does not answer: [WeirStandbysDecide](../operations/alerts/standbys-decide.md)."},
		{"weir_provisional_grants_dropped_total", "Above 0: [WeirGrantsLost](../operations/alerts/grants-lost.md)."},
		{"weir_merged_grants_total", "Nothing: owners learn of what standbys granted."},
		{"weir_strict_waits_total", "Often: strict rules cost time. Make fewer rules strict."},
		{"weir_strict_unacknowledged_total", "Above 0: [WeirStrictNotAcknowledged](../operations/alerts/strict-not-acknowledged.md)."},
	}},
	{heading: "Envoy's API", metrics: []metricAdvice{
		{"ratelimit_service_rate_limit_total_hits", "Nothing: it is the load by limit."},
		{"ratelimit_service_rate_limit_within_limit", "Nothing."},
		{"ratelimit_service_rate_limit_near_limit", "Often: raise the limit before callers run into it, or ask them why."},
		{"ratelimit_service_rate_limit_over_limit", "More than expected: look at the limit, and at the callers."},
		{"ratelimit_service_rate_limit_shadow_mode", "Tells what enforcing the limit would deny."},
		{"ratelimit_service_rate_limit_total_negative_hits", "Nothing."},
		{"ratelimit_service_should_rate_limit_error", "`service_error`: correct Envoy's configuration. `undecided`: see [undecided](../operations/alerts/checks-undecided.md)."},
		{"weir_envoy_excess_total", "Above 0: Envoy sends more than the [bounds](bounds.md). Shorten it."},
		{"ratelimit_service_global_shadow_mode", "Tells what would be denied without `--rls-shadow`."},
	}, after: "The names that the mapping of envoyproxy/ratelimit gives them: of a limit's name, which is its domain and the keys that lead to it, `key1` and\n" +
		"`key2` are the first two. There are 10,000 names at most; the limits beyond are counted under one, `others`."},
}

// metricsPageHead is what the page says before its tables.
const metricsPageHead = `# Metrics

<!-- written by go test ./node -run TestMetricsPage -update -->

The metrics of a node, with what each says and what to do about it. The terms are in the [glossary](../glossary.md).

`

const metricsPageScrape = `## Scrape them

Every node has its metrics at ` + "`GET /metrics`" + ` of its HTTP port, or of its [admin port](../security.md#keep-admin-calls-on-a-port-of-their-own). With TLS
the scraper needs the role ` + "`metrics`" + `. Have all nodes of a cluster in one job:

` + "```yaml" + `
scrape_configs:
  - job_name: weir
    static_configs:
      - targets: ["127.0.0.1:8080", "127.0.0.1:8081"] # all nodes
` + "```" + `

[Alerts](../operations/alerts.md) has the alerts and the dashboard, and a page about each alert. Below, a label has its values
with it, if these are the same on all nodes. Histograms are native ones as well, for a Prometheus that scrapes those.

`

const metricsPageRuntime = `## Go and the process

Nodes have the usual metrics of Go and of the process, too. Look at these first:

- ` + "`process_resident_memory_bytes`" + ` is what the system counts against a container's limit.
- ` + "`process_cpu_seconds_total`" + ` shows how many processors are in use, and ` + "`go_sched_gomaxprocs_threads`" + ` how many there are.
- ` + "`go_sched_latencies_seconds`" + ` is how long goroutines wait for a processor. Milliseconds mean that the node has too few.
- ` + "`process_open_fds`" + ` should stay far below ` + "`process_max_fds`" + `.
- ` + "`go_gc_duration_seconds`" + ` has the pauses for garbage collection.
`
