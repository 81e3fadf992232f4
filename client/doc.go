// Package client provides a client of Weir, which asks its nodes whether a request is within the limits.
//
//	weir, err := client.New("10.0.0.1:9090") // any node; the others are found through it
//	defer weir.Close()
//	answer, err := weir.Check(ctx, &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: "alice"})
//	if err == nil && !answer.GetAllowed() {
//		// Too many: answer.GetRetryAfter() says when to come back.
//	}
//
// A denied check is an answer with Allowed = false. Make one Client per process: it is connected to all
// nodes, balances the load, and sends simultaneous checks in one message, without waiting for more. It learns of nodes that
// come and go by the answers to checks, and else about every 10 s. [Node] asks one named node.
//
// [Client.Wait] returns when the request may go on; [Retry] repeats a call that was denied, or has failed,
// when it can succeed. Both, and the middlewares in httplimit and grpclimit, work with any [Checker]:
// package embedded has one that needs no node.
//
// # When no node answers
//
// A check waits until the deadline of its context, or for [DefaultTimeout] if that has none. A node that is
// silent for half of that, or whose connection breaks, is left for another. If all stay silent the check is
// allowed, and its answer marked as SOURCE_FAIL_OPEN, without a rule. With [WithFailClosed] it is denied
// instead. When no node has been there for a second, checks do not wait any more, until one is back.
//
// A node that does not reach the node that counts marks its answer likewise, and names the rule whose
// on_failure has decided. [Undecided] reports both.
//
// A node is silent if it answers no check at all, while this process runs. If nodes answer,
// but not all in time, or if this process is late itself, there is too much to do: what is not
// answered by its deadline is refused with RESOURCE_EXHAUSTED, as overload must not be a way
// around the limits. Of a check whose context has no deadline, and that a node has received already,
// the answer is awaited for up to another second.
//
// Errors are for requests that could not have been answered: INVALID_ARGUMENT says what
// is wrong with it; RESOURCE_EXHAUSTED, that the node, or this client, has more to do
// than it can; the context's error, that the caller has canceled; [ErrClosed], that the
// client was closed; [AccessError], that all nodes refuse this client.
//
// A check that goes to a second node may be counted twice, so that too few are allowed rather than too
// many. Giving tokens back (negative tokens) is not repeated.
//
// # When nodes refuse this client
//
// With TLS, nodes want the role check, by a certificate or an access token. If all of them refuse this client, or TLS with them
// fails, that is a mistake of a configuration and no failure: checks fail with an [AccessError], which says why, also with
// [WithFailClosed]. If one of them accepts the client, its answers count. If one of them does not respond at all,
// they count as nodes that do not answer. A check in a domain that the client has no role for fails likewise.
//
// # Leases
//
// With [WithLeases], keys that are asked for often are decided in this process: a node lends tokens, which
// it counts when it lends them, and checks take from those without asking. So with any number of clients,
// no limit allows more than it would without leases; it may allow less, by the tokens lent and not used.
// Unused tokens are given back after a quarter of a second, and at [Client.Close]. A check that finds too
// few tokens asks a node, which decides; so a key that has used up its limit is asked for as if there were
// no leases.
//
// An answer from lent tokens, SOURCE_LENT, is shared by all of them: it tells the state
// of the counter as it was when they were lent. A reset or a change of rules takes none
// back: for a quarter of a second checks may still be allowed from them. On a machine that is suspended, as virtual ones
// can be, a lease may outlive its window by what is left of it.
package client
