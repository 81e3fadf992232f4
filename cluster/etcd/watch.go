package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// Why a watch ended, other than by an error of its stream.
var (
	errCompacted = errors.New("watch lags behind a compaction")
	errSilent    = errors.New("watch is silent")
	errScheduled = errors.New("full list is due")
)

// watchFrom calls handle for every answer of a watch of our keys from revision on. It returns when the
// watch ends for any reason, or with handle's error. Nothing is missed up to then, and nothing may be
// assumed of what comes after.
//
// It speaks etcd's protocol itself, because clientv3's watch resumes behind the
// scenes where it broke off: in an etcd that was wiped in between it would wait
// for the old revision to come round again.
func (r *Registry) watchFrom(ctx context.Context, revision int64, handle func(*etcdserverpb.WatchResponse) error) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	stream, err := r.openWatch(ctx, cancel, revision)
	if err != nil {
		cancel()
		return err
	}
	responses, broken := receiveAll(ctx, stream)
	defer func() {
		cancel()
		for range broken { // until receive has ended
		}
	}()

	progress := time.NewTicker(progressEvery)
	defer progress.Stop()
	silence := time.NewTimer(staleAfter)
	defer silence.Stop()
	list := time.NewTimer(relistEvery)
	defer list.Stop()
	for {
		select {
		case resp := <-responses:
			silence.Reset(staleAfter)
			r.reachability.exchange(nil)
			if err := handleChanges(resp, handle); err != nil {
				return err
			}
		case err := <-broken:
			return err
		case <-progress.C:
			askProgress(stream)
		case <-silence.C:
			return errSilent
		case <-list.C:
			return errScheduled
		}
	}
}

// receiveAll has a goroutine receive what comes on a stream. It sends why that ended, and closes broken, once it has ended.
func receiveAll(ctx context.Context, stream etcdserverpb.Watch_WatchClient) (responses chan *etcdserverpb.WatchResponse, broken chan error) {
	responses, broken = make(chan *etcdserverpb.WatchResponse), make(chan error, 1)
	go func() {
		broken <- receive(ctx, stream, responses)
		close(broken)
	}()
	return responses, broken
}

// openWatch starts the stream, within callTimeout. cancel must end ctx.
func (r *Registry) openWatch(ctx context.Context, cancel func(), revision int64) (etcdserverpb.Watch_WatchClient, error) {
	late := time.AfterFunc(callTimeout, cancel)
	defer late.Stop()
	stream, err := etcdserverpb.NewWatchClient(r.client.ActiveConnection()).Watch(ctx, grpc.MaxCallRecvMsgSize(maxMessage))
	if err != nil {
		return nil, rpctypes.Error(err)
	}
	from, to := r.keys.watched()
	err = stream.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{
		CreateRequest: &etcdserverpb.WatchCreateRequest{
			Key:           []byte(from),
			RangeEnd:      []byte(to),
			StartRevision: revision,
		},
	}})
	return stream, rpctypes.Error(err)
}

// askProgress asks etcd to say how far the watch is. A small message never waits for the peer; an error also ends receive.
func askProgress(stream etcdserverpb.Watch_WatchClient) {
	_ = stream.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_ProgressRequest{
		ProgressRequest: &etcdserverpb.WatchProgressRequest{},
	}})
}

// receive passes on what stream yields until it ends.
func receive(ctx context.Context, stream etcdserverpb.Watch_WatchClient, to chan<- *etcdserverpb.WatchResponse) error {
	for {
		resp, err := stream.Recv()
		if err != nil {
			return rpctypes.Error(err)
		}
		select {
		case to <- resp:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// handleChanges has a response handled, unless etcd has cancelled the watch: it returns why.
func handleChanges(resp *etcdserverpb.WatchResponse, handle func(*etcdserverpb.WatchResponse) error) error {
	switch {
	case resp.CompactRevision != 0:
		return fmt.Errorf("%w at revision %d", errCompacted, resp.CompactRevision)
	case resp.Canceled:
		return fmt.Errorf("watch was cancelled: %s", resp.CancelReason)
	}
	return handle(resp)
}
