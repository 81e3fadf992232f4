package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Inspection is what Inspect has found. Errors of single members are in Members.
type Inspection struct {
	// Latency is the longest of some reads that a quorum of etcd answered.
	Latency time.Duration
	// Registered is how many members the cluster of etcd has.
	Registered int
	// Members are those at the endpoints.
	Members []InspectedMember
	// Alarms are those that etcd has raised, such as "NOSPACE of member 8e9e05c52164694d".
	Alarms []string
	// AlarmsErr says why the alarms are not known, as when this user may not ask for them.
	AlarmsErr error
}

// InspectedMember is one member of etcd.
type InspectedMember struct {
	Endpoint string
	Err      error  // it does not answer
	Version  string // of etcd
	Size     int64  // bytes of its database
	InUse    int64  // bytes of Size that hold data
	Quota    int64  // bytes that the database may have; 0 if the member does not say
	Leader   bool   // it knows a leader
}

const (
	inspectedReads = 5
	inspectTimeout = 2 * time.Second // for a member to answer
)

// Inspect asks etcd how it does. It changes nothing. The error says that no quorum answers.
func (r *Registry) Inspect(ctx context.Context) (found Inspection, err error) {
	for range inspectedReads {
		began := time.Now()
		if _, _, err := r.read(ctx, r.keys.params); err != nil {
			return Inspection{}, fmt.Errorf("read from a quorum: %w", err)
		}
		found.Latency = max(found.Latency, time.Since(began))
	}
	for _, endpoint := range r.client.Endpoints() {
		found.Members = append(found.Members, r.inspect(ctx, endpoint))
	}
	bounded, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	if list, err := r.client.MemberList(bounded); err == nil {
		found.Registered = len(list.Members)
	}
	alarms, err := r.client.AlarmList(bounded)
	if err != nil {
		found.AlarmsErr = err
		return found, nil
	}
	for _, a := range alarms.Alarms {
		found.Alarms = append(found.Alarms, fmt.Sprintf("%v of member %x", a.Alarm, a.MemberID))
	}
	return found, nil
}

func (r *Registry) inspect(ctx context.Context, endpoint string) InspectedMember {
	bounded, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	m := InspectedMember{Endpoint: endpoint}
	var status *clientv3.StatusResponse
	if status, m.Err = r.client.Status(bounded, endpoint); m.Err == nil {
		m.Version, m.Size, m.InUse, m.Leader, m.Quota = status.Version, status.DbSize, status.DbSizeInUse, status.Leader != 0, status.DbSizeQuota
	}
	return m
}

// IsAlarm reports whether an error is that of an etcd which takes no writes because of an alarm, NOSPACE or CORRUPT. It is read as before.
func IsAlarm(err error) bool {
	return errors.Is(err, rpctypes.ErrNoSpace) || errors.Is(err, rpctypes.ErrCorrupt)
}

// MayWrite reports whether etcd lets this node write below the keys of the cluster. It writes nothing: etcd looks at all
// of a transaction, also at what is not carried out.
func (r *Registry) MayWrite(ctx context.Context) error {
	_, err := r.txn(ctx, callTimeout, transaction{
		when: []clientv3.Cmp{unchanged(r.keys.params, -1)}, // no key ever is at that revision
		then: []clientv3.Op{clientv3.OpPut(r.keys.params, "")},
	})
	if err != nil {
		return fmt.Errorf("writing below %s: %w", r.keys.root, err)
	}
	return nil
}
