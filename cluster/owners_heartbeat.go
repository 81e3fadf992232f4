package cluster

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/cluster/view"
)

// beat asks another member for a sign of life, over and over, and for its view if that is newer.
func (o *Owners) beat(ctx context.Context, c *otherMember) {
	tick := time.NewTicker(heartbeatEvery)
	defer tick.Stop()
	for missed := 0; ; {
		c.asked.Store(time.Now().UnixNano())
		if c.connects(ctx) {
			missed++
			if o.beatOnce(ctx, c) {
				missed = 0
			} else if conn := c.dialed.Load(); missed%beatsMissed == 0 && conn != nil {
				_ = (*conn).Close() // it may be closed already
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-c.due:
		}
	}
}

func (o *Owners) beatOnce(ctx context.Context, c *otherMember) (answered bool) {
	caller, sent, asked := o.caller(c), time.Now(), o.Shard.Now()
	caller.To = 0 // to hear if it was restarted
	call, cancel := context.WithTimeout(ctx, callTimeout)
	resp, err := c.client.Heartbeat(call, &peerv1.HeartbeatRequest{
		Caller: caller, Reports: o.Reports().Append(nil), Findings: o.admission.say(), Farewells: wireFarewells(o.Farewells()),
	})
	cancel()
	if err != nil {
		return status.Code(err) == codes.FailedPrecondition // a refusal is an answer
	}
	c.compare(resp.GetClock(), asked, o.Shard.Now())
	o.hear(view.Life{ID: c.member.ID, Incarnation: resp.GetIncarnation()}, resp.GetReports(), resp.GetFindings(), resp.GetFarewells())
	c.answered.Store(resp.GetIncarnation())
	if !c.isItself() {
		return true // it was restarted, and may have forgotten a view
	}
	c.note(resp, sent)
	o.admission.answered(c.member.life())
	if resp.GetView() > caller.GetView() {
		o.catchUp(ctx, c.client, caller)
	}
	o.node.Answered(c.member.life(), resp.GetView(), sent)
	return true
}

// hear records what a member reports of all nodes, what it has found of those that would join, and which lives have said farewell, as it knows it. Reports and
// farewells are known at once: a later life of an owner that knew only the reports would stand in, and the learner too.
func (o *Owners) hear(from view.Life, encoded []byte, findings []*peerv1.Finding, farewells []*peerv1.Farewell) {
	o.admission.hear(from.ID, findings)
	reports, err := view.ParseReports(encoded, o.params.Partitions)
	if err != nil {
		o.Logger.Error("reports of a member refused", "member", from.ID, "error", err)
	}
	if o.noteReports(from, reports, farewells) && !o.IsOver() {
		o.Logger.Error("other nodes were told that this node has ended; it decides nothing any more: start it again", "by", from.ID)
		o.node.End()
		o.EndConfirming()
	}
}

// noteReports is false unless this life itself is said to have ended, by one that the view concerns. Others say nothing of farewells.
func (o *Owners) noteReports(from view.Life, reports []view.Report, farewells []*peerv1.Farewell) (ended bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range reports {
		o.newest.Note(r)
	}
	if o.newest.Concerns(from) {
		ended = o.noteFarewells(farewells)
	}
	if len(o.Farewells()) > 0 {
		o.standIns.find()
	}
	return ended
}

// catchUp fetches the view of a node that has said that it has a newer one, and adopts it.
func (o *Owners) catchUp(ctx context.Context, from peerv1.PeerClient, caller *peerv1.Caller) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := from.GetView(call, &peerv1.GetViewRequest{Caller: caller})
	if err != nil || len(resp.GetView()) == 0 {
		return
	}
	v, err := view.Unmarshal(resp.GetView())
	if err != nil {
		o.Logger.Error("view of another node refused", "error", err)
		return
	}
	o.Adopt(v)
}
