// Package client asks the nodes of Weir whether something may be done now.
//
//	weir, err := client.New("10.0.0.1:9090") // any node; the others are found through it
//	defer weir.Close()
//	answer, err := weir.Check(ctx, &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: "alice"})
//	if err == nil && !answer.GetAllowed() {
//		// Too many: answer.GetRetryAfter() says when to come back.
//	}
//
// A denied check is an answer with Allowed = false. Make one Client per process: it is
// connected to all nodes, shares the load out among them, and sends what is asked at the
// same time in one message, without waiting for company. [Node] asks one named node.
//
// [Client.Wait] returns when the request may go on; [Retry] repeats what was denied, or has
// failed, when it can succeed. Both, and the middlewares in httplimit and grpclimit, work
// with any [Checker]: package embedded has one that needs no node.
//
// # When no node answers
//
// A check waits until the deadline of its context, or for [DefaultTimeout] if that has
// none. A node that is silent for half of that, or whose connection breaks, is left for
// another. If none answers in time the check is let through, and its answer marked as
// SOURCE_FAIL_OPEN; [Undecided] tells it from the answer of a node. With
// [WithFailClosed] it is denied instead. When no node has been there for a second,
// checks do not wait any more, until one is back.
//
// Errors are for requests that could not have been answered: INVALID_ARGUMENT says what
// is wrong with it; RESOURCE_EXHAUSTED, that the node, or this client, has more to do
// than it can; the context's error, that the caller has canceled; [ErrClosed], that the
// client was closed.
//
// A check that goes to a second node may be counted twice, so that too few are let
// through rather than too many. Giving tokens back (negative tokens) is not repeated.
//
// # Leases
//
// With [WithLeases], keys that are asked for often are decided in this process: a node
// lends tokens, which it counts when it lends them, and checks take from those without
// asking. So however many clients there are, no limit lets through more than it would
// without leases; it may let through less, by what is lent and not used. What is not
// used is given back after a quarter of a second, and at [Client.Close]. A check that finds too few
// tokens asks a node, which has the last word; so a key that has used up its limit is
// asked for as if there were no leases.
//
// An answer from lent tokens, SOURCE_LENT, is shared by all of them: it tells the state
// of the counter as it was when they were lent. A reset or a change of rules takes none
// back: for a quarter of a second checks may still be allowed from them. On a machine that is suspended, as virtual ones
// can be, a lease may outlive its window by what is left of it.
package client
