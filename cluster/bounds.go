package cluster

import "time"

// Times of Owners.
const (
	heartbeatEvery = 500 * time.Millisecond // to each member
	callTimeout    = 500 * time.Millisecond // of one call to a peer
	readAgain      = 50 * time.Millisecond  // after an attempt to read the view that failed
	doubtAfter     = 3 * time.Second        // a change of members that was not adopted is a problem to tell of
)

// Times since this node has lost a member.
const (
	wordWithin  = 150 * time.Millisecond // others may take to say whether they reach it
	askAgainFor = time.Second            // those that say so are asked again: they may lose it just then
)

// lastResortAfter is how long a life must be lost before another node grants in its place that has no copy: it may have been late, or is being started again.
const lastResortAfter = 500 * time.Millisecond

// maxRelays is through how many members a node tries to reach one that it does not reach itself.
const maxRelays = 3

// copyPause is how long the asker waits before owner and standby are asked again, one of which is about to have it, or a copy.
const copyPause = 5 * time.Millisecond

// Times of what is asked of peers.
const (
	attemptShare = 0.4                    // the most of the caller's own time that one request waits
	retireGrace  = 250 * time.Millisecond // what peers that are left get to finish, beyond an attempt
	closeGrace   = 20 * time.Millisecond  // what peers get to answer when this node ends
)

// relayPatience is the most that a frame waits for what is relayed, a third of it for what is
// relayed through others, and resumePatience for the decision lease of this node to be valid again: the sender
// hears nothing meanwhile, and takes that for death after silence.
const (
	relayPatience  = silence / 3
	resumePatience = 50 * time.Millisecond // it takes some 5, unless a standby does not answer
)
