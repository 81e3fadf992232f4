package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weirlimit/weir/cluster/etcd"
)

// Bounds of an etcd that does well.
const (
	slowEtcd     = 100 * time.Millisecond // for a read that a quorum answers
	tooSlowEtcd  = time.Second
	etcdQuota    = 2 << 30 // bytes, etcd's own default
	etcdFillsUp  = 0.8     // of the quota
	wantedEtcds  = 3
	etcdDefragAt = 512 << 20 // bytes of a database that are not in use
)

// inspectEtcd says how etcd does.
func (d *doctor) inspectEtcd(ctx context.Context) {
	found, err := d.node.registry.Inspect(ctx)
	if err != nil {
		d.advise(Bad, "etcd", "see whether a majority of its members runs: etcdctl endpoint health --cluster", "%v", err)
		return
	}
	d.findings = append(d.findings, etcdFindings(found, len(d.node.opts.Etcd) > 0 && d.taken["etcd-listen"] == "")...)
}

// etcdFindings judges what was found of etcd, which is a cluster of its own or in the process of a node.
func etcdFindings(found etcd.Inspection, own bool) (all []Finding) {
	add := func(severity Severity, text, advice string) {
		all = append(all, Finding{severity, "etcd", text, advice})
	}
	latency := fmt.Sprintf("a quorum answers a read within %v", found.Latency.Round(10*time.Microsecond))
	switch {
	case found.Latency > tooSlowEtcd:
		add(Bad, latency+": leases of nodes may end", "give etcd a disk of its own with fast fsync, and see the network between its members (etcdctl check perf)")
	case found.Latency > slowEtcd:
		add(Doubtful, latency, "give etcd a disk of its own with fast fsync, and see the network between its members (etcdctl check perf)")
	default:
		add(Good, latency, "")
	}
	for _, m := range found.Members {
		all = append(all, memberFinding(m))
	}
	if own && found.Registered > 0 && found.Registered < wantedEtcds {
		add(Doubtful, fmt.Sprintf("it has %d members: if one is lost, no node can join or leave, and no rule can change", found.Registered), "run three members on three machines for production")
	}
	for _, alarm := range found.Alarms {
		advice := "see the log of that member, and replace it from a backup"
		if strings.HasPrefix(alarm, "NOSPACE") {
			advice = "compact and defragment it (etcdctl compact, etcdctl defrag), then etcdctl alarm disarm; raise --quota-backend-bytes of etcd"
		}
		add(Bad, "alarm "+alarm+": etcd accepts no writes", advice)
	}
	if found.AlarmsErr != nil {
		add(Doubtful, fmt.Sprintf("its alarms are not known: %v", found.AlarmsErr), "ask with a user that may: etcdctl alarm list")
	}
	return all
}

func memberFinding(m etcd.InspectedMember) Finding {
	subject := "etcd " + m.Endpoint
	quota := m.Quota
	if quota == 0 {
		quota = etcdQuota
	}
	text := fmt.Sprintf("version %s, database of %v with %v in use, of at most %v", m.Version, Bytes(m.Size), Bytes(m.InUse), Bytes(quota))
	switch {
	case m.Err != nil:
		return Finding{Bad, subject, fmt.Sprintf("the member does not say how it does: %v", m.Err), "start it again, or take its endpoint out of --etcd"}
	case !m.Leader:
		return Finding{Bad, subject, text + "; it knows no leader", "see whether it reaches a majority of the members: etcdctl endpoint status --cluster"}
	case float64(m.Size) > etcdFillsUp*float64(quota):
		return Finding{Doubtful, subject, text, "compact and defragment it before it accepts no writes (etcdctl compact, etcdctl defrag), or raise its --quota-backend-bytes"}
	case m.Size-m.InUse > etcdDefragAt:
		return Finding{Doubtful, subject, text, "give the unused part back: etcdctl defrag, one member after the other"}
	}
	return Finding{Severity: Good, Subject: subject, Text: text}
}
