// Tests against a real node, whose HTTP is at WEIR_HTTP and whose gRPC is at WEIR_GRPC, and its cluster, whose HTTP
// is at WEIR_NODES, separated by commas; with the rules in ../../test-rules.yaml.

import assert from "node:assert/strict";
import { randomUUID as name } from "node:crypto"; // of users that no test has used
import { createServer, type IncomingMessage, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { after, test } from "node:test";

import express from "express";

import { LiveClock } from "../src/clock.js";
import { Denials, maxDenials } from "../src/denials.js";
import { limit, type LimitOptions } from "../src/express.js";
import { type Answer, type Check, GRPCPortError, headersOf, InvalidError, type Options, OverloadedError, Weir } from "../src/index.js";
import { decode, undecided } from "../src/model.js";
import { Nodes } from "../src/nodes.js";

const node = process.env["WEIR_HTTP"] ?? assert.fail("WEIR_HTTP is not set");
const nodes = (process.env["WEIR_NODES"] ?? node).split(",");
const decided = /^SOURCE_(OWNER|STANDBY|LENT)$/; // as exact as each other
const grpc = process.env["WEIR_GRPC"] ?? assert.fail("WEIR_GRPC is not set");
const long = 20_000; // milliseconds; far above every timeout below

const servers: Server[] = [];
after(() => servers.forEach((server) => (server.close(), server.closeAllConnections())));

/** Runs a server and returns its address. */
async function serve(handler: RequestListener): Promise<string> {
  const server = createServer(handler);
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** An address on which no server listens. */
async function unused(): Promise<string> {
  const address = await serve(() => {});
  await new Promise((resolve) => servers.pop()!.close(resolve));
  return address;
}

/** Runs a limited server and returns its address. */
function limited(weir: Weir, answers: Answer[] = [], options: LimitOptions = {}): Promise<string> {
  const app = express();
  app.use(limit(weir, (req) => ["user", req.get("User") ?? ""], options));
  app.use((_req, res) => {
    answers.push(res.locals["weir"]);
    res.send("served");
  });
  return serve(app);
}

const get = (address: string, path: string, user: string) => fetch(`http://${address}${path}`, { headers: { User: user } });

const silent: RequestListener = () => {};

const pause = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Has the process get nothing done. */
function block(milliseconds: number): void {
  for (const until = performance.now() + milliseconds; performance.now() < until; );
}

/** Stands before the real node and delays its replies. Counts requests and their checks. */
async function proxy(delay: number): Promise<{ address: string; requests: number; checks: number }> {
  const counts = { address: "", requests: 0, checks: 0 };
  counts.address = await serve(async (req, res) => {
    const body = await text(req);
    counts.requests++;
    counts.checks += (JSON.parse(body) as { requests: unknown[] }).requests.length;
    const headers = { "Content-Type": "application/json" };
    const reply = await fetch(`http://${node}${req.url}`, { method: "POST", headers, body });
    const content = await reply.text();
    await pause(delay);
    res.writeHead(reply.status).end(content);
  });
  return counts;
}

async function text(req: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of req) {
    parts.push(part as Buffer);
  }
  return Buffer.concat(parts).toString();
}

/** Checks that so many logins at once pass exactly as often as the limit of 3 allows. Returns how many were refused. */
async function burst(weir: Weir, callers: number, meanwhile = () => {}): Promise<number> {
  const check: Check = { identifierType: "user", identifier: name(), endpoint: "login" };
  const all = Promise.allSettled(Array.from({ length: callers }, () => weir.check(check)));
  await new Promise(setImmediate);
  meanwhile();
  const outcomes = await all;
  const passed = outcomes.flatMap((o) => (o.status === "fulfilled" && o.value.allowed ? [o.value.source] : []));
  assert.ok(passed.length === 3 && passed.every((source) => decided.test(source)), passed.join());
  const errors = outcomes.flatMap((o) => (o.status === "rejected" ? [o.reason as unknown] : []));
  assert.deepEqual(errors.filter((error) => !(error instanceof OverloadedError)), []);
  return errors.length;
}

test("a user is limited", async () => {
  const answers: Answer[] = [];
  const address = await limited(new Weir([node], { timeout: long }), answers);
  const alice = name();
  for (const left of [1, 0]) {
    const reply = await get(address, "/posts", alice);
    assert.equal(reply.status, 200);
    assert.match(reply.headers.get("RateLimit") ?? "", new RegExp(`^"paths";r=${left};t=`));
  }
  const denied = await get(address, "/posts", alice);
  assert.equal(denied.status, 429);
  assert.ok(Number(denied.headers.get("Retry-After")) > 0);
  assert.match(denied.headers.get("Content-Type") ?? "", /^application\/problem\+json/);
  const problem = (await denied.json()) as Record<string, unknown>;
  assert.deepEqual([problem["status"], problem["violated-policies"]], [429, ["paths"]]);
  assert.equal((await get(address, "/posts", name())).status, 200);
  assert.deepEqual(answers.map((answer) => answer.ruleId), ["paths", "paths", "paths"]);
});

test("a request without a name is limited by its address", async () => {
  const answers: Answer[] = [];
  await get(await limited(new Weir([node], { timeout: long }), answers), "/anonymous", "");
  assert.equal(answers[0]?.ruleId, "addresses");
});

test("a check tells when to come back", async () => {
  const weir = new Weir([node], { timeout: long });
  const check = { identifierType: "user", identifier: name(), endpoint: "post" };
  assert.match((await weir.check({ ...check, tokens: 2 })).source, decided);
  const denied = await weir.check(check);
  assert.ok(!denied.allowed && denied.retryAfter! > 0 && denied.retryAfter! <= 86400, String(denied.retryAfter));
  assert.equal((await weir.check({ ...check, tokens: 3 })).retryAfter, undefined); // costs more than the limit
});

test("requests wait for their turn", async () => {
  const address = await limited(new Weir([node], { timeout: long }));
  const alice = name();
  const begin = performance.now();
  await Promise.all([get(address, "/queue", alice), get(address, "/queue", alice)]);
  const took = performance.now() - begin;
  assert.ok(took > 95, `two that came at once were ${took} ms apart, want 100`);
});

test("a client that has gone is not served", async () => {
  let asked = () => {};
  const waiting = new Promise<void>((resolve) => (asked = resolve));
  const slow = await serve((_req, res) => {
    res.end('{"responses":[{"allowed":true,"source":"SOURCE_OWNER","rule_id":"queue","delay":"600s"}]}');
    asked();
  });
  let closed = () => {};
  const left = new Promise<void>((resolve) => (closed = resolve));
  let served = false;
  const app = express();
  app.use((_req, res, next) => (res.on("close", closed), next()));
  app.use(limit(new Weir([slow], { timeout: long }), () => ["user", "alice"]));
  app.use(() => (served = true));
  const gone = new AbortController();
  const request = fetch(`http://${await serve(app)}`, { signal: gone.signal });
  await waiting;
  gone.abort();
  await assert.rejects(request);
  await left;
  await new Promise(setImmediate);
  assert.equal(served, false);
});

test("what a node refuses is refused", async () => {
  const weir = new Weir([node], { timeout: long });
  await assert.rejects(weir.check({ identifierType: "user", identifier: "" }), InvalidError);
  const answers: Answer[] = [];
  const reply = await get(await limited(weir, answers), "/", "a".repeat(257));
  assert.equal(reply.status, 400);
  assert.match(await reply.text(), /257 bytes are more than 256/);
  assert.equal(answers.length, 0);
});

test("another node is asked", async () => {
  const weir = new Weir([await unused(), await serve(silent), node], { timeout: 2000 });
  for (let i = 0; i < 2; i++) {
    const answer = await weir.check({ identifierType: "user", identifier: name(), endpoint: "post" });
    assert.match(answer.source, decided);
  }
});

const failures: Record<string, RequestListener> = {
  silent,
  dripping: (_req, res) => {
    const timer = setInterval(() => res.write(" "), 10);
    res.on("close", () => clearInterval(timer));
  },
  nonsense: (_req, res) => res.end("nonsense"),
  null: (_req, res) => res.end("null"),
  "too few answers": (_req, res) => res.end('{"responses":[]}'),
  "a null answer": (_req, res) => res.end('{"responses":[null]}'),
  "an error": (_req, res) => res.writeHead(500).end("{}"),
};
for (const [what, handler] of Object.entries(failures)) {
  test(`a node that answers with ${what} does not stop requests`, { timeout: long }, async () => {
    const answers: Answer[] = [];
    const reply = await get(await limited(new Weir([await serve(handler)], { timeout: 50 }), answers), "/", "alice");
    assert.equal(await reply.text(), "served");
    assert.equal(answers[0]?.source, "SOURCE_FAIL_OPEN");
  });
}

test("failing closed denies", async () => {
  const reply = await get(await limited(new Weir([await unused()], { failOpen: false })), "/", "alice");
  assert.equal(reply.status, 429);
});

test("overload is no way in", async () => {
  const busy = await serve((_req, res) => res.writeHead(429).end('{"code":8,"message":"overloaded"}'));
  const weir = new Weir([busy], { timeout: long });
  await assert.rejects(weir.check({ identifierType: "user", identifier: "alice" }), OverloadedError);
  const reply = await get(await limited(weir), "/", "alice");
  assert.deepEqual([reply.status, reply.headers.get("Retry-After")], [503, "1"]);
});

test("200 logins at once", async () => {
  assert.equal(await burst(new Weir(nodes, { timeout: long }), 200), 0);
});

test("200 requests at once to a server", async () => {
  const address = await limited(new Weir(nodes, { timeout: 5000 }));
  const alice = name();
  const replies = await Promise.all(Array.from({ length: 200 }, () => get(address, "/login", alice)));
  assert.equal(replies.filter(({ status }) => status === 200).length, 3);
  assert.ok(replies.every(({ status }) => status === 200 || status === 429 || status === 503));
});

test("200 logins at once while the process is late", async () => {
  await burst(new Weir(nodes, { timeout: 1000 }), 200, () => block(3000));
});

test("the time of nodes stands still while the process does", async () => {
  const clock = new LiveClock();
  const begin = performance.now();
  const over = clock.reach(50);
  block(500);
  await pause(0);
  assert.ok(clock.elapsed <= 20, `${clock.elapsed} ms`);
  await over;
  assert.ok(clock.elapsed >= 50 && performance.now() - begin >= 525);
  clock.stop();
});

test("200 logins at once of a slow node", async () => {
  const slow = await proxy(300);
  await burst(new Weir([slow.address], { timeout: 5000 }), 200);
  assert.ok(slow.requests < 50, `${slow.requests} requests; checks at once travel together`);
});

test("a node that is slower than half of the timeout counts with another", async () => {
  for (let i = 0; i < 5; i++) {
    // which is asked first is drawn
    const slow = await proxy(600);
    assert.equal(await burst(new Weir([slow.address, node], { timeout: 1000 }), 50), 0);
  }
});

test("own overload is refused", async () => {
  const slow = await proxy(200);
  const weir = new Weir([slow.address], { timeout: 500, maxInFlight: 1, maxQueue: 20 });
  const check = { identifierType: "user", identifier: name(), endpoint: "login" };
  const first = weir.check(check);
  await new Promise(setImmediate);
  const rest = await Promise.allSettled(Array.from({ length: 100 }, () => weir.check(check)));
  assert.equal((await first).remaining, 2);
  assert.equal(rest.filter((o) => o.status === "rejected" && o.reason instanceof OverloadedError).length, 80);
  assert.equal(rest.filter((o) => o.status === "fulfilled" && o.value.allowed).length, 2);
});

test("what is not sent in time is refused", async () => {
  const slow = await proxy(300);
  const weir = new Weir([slow.address], { timeout: 500, maxInFlight: 1 });
  const check = { identifierType: "user", identifier: name(), endpoint: "login" };
  // What gives back travels by itself, so that these are three requests, the last after 600 ms.
  const all = [weir.check(check), weir.check({ ...check, tokens: -1 }), weir.check(check)];
  const [, , last] = await Promise.allSettled(all);
  assert.ok(last?.status === "rejected" && last.reason instanceof OverloadedError, JSON.stringify(last));
});

test("a denial is remembered", async () => {
  const near = await proxy(0);
  const weir = new Weir([near.address], { timeout: long, rememberDenials: long });
  const check = { identifierType: "user", identifier: name(), endpoint: "post", tokens: 2 };
  for (let i = 0; i < 50; i++) {
    assert.equal((await weir.check(check)).allowed, i === 0);
  }
  assert.equal(near.requests, 2);
  await weir.check({ ...check, tokens: 3 }); // has another wait
  await weir.check({ ...check, endpoint: "other" });
  await weir.check({ ...check, identifier: name() });
  await weir.check({ ...check, attributes: { method: "GET" } });
  assert.equal(near.requests, 6);
  await weir.check({ ...check, tokens: -2 });
  assert.ok((await weir.check(check)).allowed, "what is given back is seen");
});

test("a denial is not remembered for longer", async () => {
  const weir = new Weir([node], { timeout: long, rememberDenials: 200 });
  const check = { identifierType: "user", identifier: name(), endpoint: "post" };
  await weir.check({ ...check, tokens: 2 });
  assert.ok(!(await weir.check(check)).allowed);
  await new Weir([node], { timeout: long }).check({ ...check, tokens: -1 });
  assert.ok(!(await weir.check(check)).allowed);
  await pause(250);
  assert.ok((await weir.check(check)).allowed);
});

test("the memory of denials is bounded", () => {
  const denials = new Denials(long);
  const check = (i: number) => ({ identifierType: "user", identifier: String(i) });
  for (let i = 0; i < maxDenials + 5; i++) {
    denials.note(check(i), { ...undecided(false), retryAfter: long });
  }
  assert.equal(denials.find(check(4)), undefined);
  assert.ok(denials.find(check(5))!.retryAfter! < long);
});

test("a silent node is not waited for again", async () => {
  const weir = new Weir([await serve(silent)], { timeout: 200 });
  const begin = performance.now();
  for (let i = 0; i < 100; i++) {
    assert.equal((await weir.check({ identifierType: "user", identifier: name() })).source, "SOURCE_FAIL_OPEN");
  }
  assert.ok(performance.now() - begin < 3000, "20 s if each of them waits");
});

test("a node that is back is asked", async () => {
  let mute = true;
  const weir = new Weir(
    [await serve((_req, res) => mute || res.end('{"responses":[{"allowed":true,"source":"SOURCE_OWNER"}]}'))],
    { timeout: 100 },
  );
  const source = async () => (await weir.check({ identifierType: "user", identifier: name() })).source;
  assert.equal(await source(), "SOURCE_FAIL_OPEN");
  mute = false;
  for (const until = performance.now() + long; (await source()) !== "SOURCE_OWNER"; await pause(10)) {
    assert.ok(performance.now() < until);
  }
});

test("a node that is back is asked while another answers, and no check waits for it before", async () => {
  let mute = true;
  let checks = 0;
  let probes = 0; // requests without checks
  const back = await serve(async (req, res) => {
    const { requests } = JSON.parse(await text(req)) as { requests: unknown[] };
    checks += requests.length;
    probes += requests.length === 0 ? 1 : 0;
    if (mute) {
      return;
    }
    const responses = requests.map(() => ({ allowed: true, source: "SOURCE_OWNER" }));
    res.end(JSON.stringify(requests.length > 0 ? { responses } : { code: 3, message: "requests: must not be empty" }));
  });
  const weir = new Weir([back, node], { timeout: 5000 }); // the other one has half of it on a busy machine
  const check = () => weir.check({ identifierType: "user", identifier: name(), endpoint: "post" });
  while (checks === 0) {
    await check(); // it is silent for half of the timeout
  }
  for (const until = performance.now() + long; probes < 2; await pause(10)) {
    assert.ok(performance.now() < until, `it was asked ${probes} times whether it is back`);
    await check();
    assert.equal(checks, 1, "a check was sent to the node that rests");
  }
  mute = false;
  for (const until = performance.now() + long; checks === 1; await pause(10)) {
    assert.ok(performance.now() < until);
    await check();
  }
});

test("what gives tokens back is sent to one node only", async () => {
  let asked = 0;
  const mute: RequestListener = () => asked++;
  const weir = new Weir([await serve(mute), await serve(mute)], { timeout: 200 });
  const answer = await weir.check({ identifierType: "user", identifier: "alice", tokens: -1 });
  assert.deepEqual([answer.source, asked], ["SOURCE_FAIL_OPEN", 1]);
});

test("one check that a node refuses does not refuse the others", async () => {
  const strict = await serve(async (req, res) => {
    const { requests } = JSON.parse(await text(req)) as { requests: { identifier: string }[] };
    const bad = requests.findIndex(({ identifier }) => identifier === "bad");
    const responses = requests.map(({ identifier }) => ({ allowed: true, rule_id: identifier }));
    res.end(JSON.stringify(bad < 0 ? { responses } : { code: 3, message: `requests[${bad}].identifier: bad` }));
  });
  const weir = new Weir([strict], { timeout: long });
  const names = Array.from({ length: 30 }, (_, i) => (i === 7 || i === 20 ? "bad" : String(i)));
  const outcomes = await Promise.allSettled(names.map((identifier) => weir.check({ identifierType: "user", identifier })));
  outcomes.forEach((outcome, i) => {
    if (names[i] !== "bad") {
      assert.equal(outcome.status === "fulfilled" && outcome.value.ruleId, names[i]);
    } else {
      assert.ok(outcome.status === "rejected" && outcome.reason instanceof InvalidError && outcome.reason.message === "identifier: bad");
    }
  });
});

test("the port of gRPC is named", async () => {
  const weir = new Weir([grpc], { timeout: long });
  const check = weir.check({ identifierType: "user", identifier: "alice" });
  await assert.rejects(check, (error) => error instanceof GRPCPortError && error.message.startsWith(`${grpc} speaks gRPC, not HTTP`));
});

test("an idle connection that was closed is no failure", async () => {
  const app = await serve((_req, res) => {
    res.end('{"responses":[{"allowed":true,"source":"SOURCE_OWNER"}]}');
    res.on("close", () => res.socket?.destroy());
  });
  const weir = new Weir([app], { timeout: long });
  for (let i = 0; i < 10; i++) {
    assert.equal((await weir.check({ identifierType: "user", identifier: name() })).source, "SOURCE_OWNER");
  }
});

test("rules see the route, or else a path that nodes take", async () => {
  const seen: string[] = [];
  const weir = { check: (check: Check) => (seen.push(check.endpoint!), Promise.resolve(undecided(true))) } as unknown as Weir;
  const guard = limit(weir, () => ["user", "alice"]);
  const app = express();
  app.get("/posts/:id", guard, (_req, res) => void res.send());
  app.use("/mounted", express.Router().get("/posts/:id", guard, (_req, res) => void res.send()));
  app.use(guard, (_req, res) => void res.send());
  const address = await serve(app);
  const tail = "a".repeat(300);
  for (const path of ["/posts/7", "/mounted/posts/7", "/other", `/v1/${tail}/login`, `/v1/${tail}a/login`, `/v1/${"%C3%A4".repeat(100)}`]) {
    await get(address, path, "");
  }
  assert.deepEqual(seen.slice(0, 3), ["/posts/:id", "/mounted/posts/:id", "/other"]);
  seen.slice(3).forEach((path) => assert.ok(path.length === 256 && path.startsWith("/v1/"), path));
  assert.match(seen[3]!, /^\/v1\/a+~[0-9a-f]{32}~a+\/login$/);
  assert.notEqual(seen[3], seen[4]);
});

test("the endpoint and the cost can be chosen", async () => {
  const answers: Answer[] = [];
  const address = await limited(new Weir([node], { timeout: long }), answers, { endpoint: () => "login", tokens: () => 2 });
  await get(address, "/", name());
  assert.deepEqual([answers[0]?.ruleId, answers[0]?.remaining], ["logins", 1]);
});

test("clients are told of all policies", () => {
  const limits = [
    { rule_id: "a", limit: 5, window: "10s", algorithm: "gcra", allowed: true, reset_after: "1s" },
    { rule_id: "a", limit: 50, window: "3600s", algorithm: "gcra", allowed: false, reset_after: "60s" },
    { rule_id: "hidden", limit: 1, window: "1s", algorithm: "gcra", allowed: false, reset_after: "1s", shadow: true },
    { rule_id: 'b"\u00e4', limit: 7, calendar: "month", algorithm: "fixed_window", allowed: true, reset_after: "99s" },
  ];
  const answer = decode({
    allowed: false, source: "SOURCE_OWNER", rule_id: "a", limit: 50, window: "3600s", remaining_tokens: 0,
    reset_after: "59.5s", retry_after: "30s", limits,
  });
  const { "Retry-After": wait, ...fields } = headersOf(answer);
  assert.ok(Number(wait) >= 30 && Number(wait) <= 33, wait);
  assert.deepEqual(fields, {
    "RateLimit-Policy": '"a[1]";q=50;w=3600, "a";q=5;w=10, "b\\"%C3%A4";q=7',
    RateLimit: `"a[1]";r=0;t=${wait}`,
    "X-RateLimit-Limit": "50", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "60", "X-RateLimit-Retry-After": wait,
  });
  assert.deepEqual(answer.violated, ["a[1]"]);
  assert.deepEqual(headersOf(undecided(false)), {});
});

test("what nodes would refuse is not sent", async () => {
  const weir = new Weir([await unused()]);
  const invalid: [Partial<Check>, string][] = [
    [{ identifier: "" }, "identifier: must not be empty"],
    [{ identifier: "ä".repeat(129) }, "identifier: 258 bytes are more than 256"],
    [{ identifier: "\ud800" }, "identifier: must be a well-formed string"],
    [{ identifierType: "u".repeat(65) }, "identifierType: 65 bytes are more than 64"],
    [{ endpoint: "a".repeat(257) }, "endpoint: 257 bytes are more than 256"],
    [{ tokens: 0 }, "tokens: 0 is 0"],
    [{ tokens: 1.5 }, "tokens: 1.5 is 0, no integer"],
    [{ attributes: Object.fromEntries(Array.from({ length: 15 }, (_, i) => [`a${i}`, ""])) }, "attributes: 15 are more than 14"],
    [{ attributes: { user: "bob" } }, 'attributes: "user" is the identifierType'],
  ];
  for (const [part, message] of invalid) {
    const check = weir.check({ identifierType: "user", identifier: "alice", ...part });
    await assert.rejects(check, (error) => error instanceof InvalidError && error.message.startsWith(message), message);
  }
});

test("a client that is closed ends", async () => {
  const weir = new Weir([node], { timeout: long });
  const check = weir.check({ identifierType: "user", identifier: name(), endpoint: "post" });
  weir.close();
  assert.match((await check).source, decided);
  await assert.rejects(weir.check({ identifierType: "user", identifier: name() }), /closed/);
});

test("bad arguments are refused", () => {
  assert.throws(() => new Weir([]), RangeError);
  const bad: Options[] = [{ cluster: "default" }, { timeout: 0 }, { maxInFlight: 0 }, { maxQueue: 0 }, { rememberDenials: -1 }, { timeout: NaN }];
  bad.forEach((options) => assert.throws(() => new Weir([node], options), RangeError));
  assert.throws(() => new Weir(["host"]), TypeError);
  assert.throws(() => new Weir(["a b:1"]), TypeError);
});

test("a node of another cluster is not asked", async () => {
  const seen: (string | undefined)[] = [];
  const stranger = await serve((req, res) => {
    seen.push(req.headers["weir-cluster"] as string | undefined);
    res.writeHead(200, { "Weir-Cluster": "ff" }).end(JSON.stringify({ responses: [{ allowed: true, source: "SOURCE_OWNER" }] }));
  });
  const home = await serve((_req, res) => {
    res.writeHead(200, { "Weir-Cluster": "aa" }).end(JSON.stringify({ responses: [{ allowed: true, source: "SOURCE_RELAYED" }] }));
  });
  const other = await serve((_req, res) => {
    res.writeHead(200, { "Weir-Cluster": "aa" }).end(JSON.stringify({ responses: [{ allowed: true, source: "SOURCE_RELAYED" }] }));
  });
  const weir = new Weir([home, other, stranger], { timeout: long });
  const sources: string[] = [];
  const ask = async () => (await weir.check({ identifierType: "user", identifier: name() })).source;
  for (const until = performance.now() + long; !seen.includes("aa") && performance.now() < until; ) {
    await ask(); // the stranger may be the first to name a cluster
  }
  assert.equal(seen.at(-1), "aa");
  for (let i = 0; i < 50; i++) {
    sources.push(await ask());
  }
  weir.close();
  assert.deepEqual(new Set(sources), new Set(["SOURCE_RELAYED"]));
  assert.equal(seen.at(-1), "aa");
});

test("a client that was given its cluster never asks another", async () => {
  const allow = JSON.stringify({ responses: [{ allowed: true, source: "SOURCE_OWNER" }] });
  const own = "00000000000000aa";
  const meant: (string | undefined)[] = [];
  for (const fields of [{ "Weir-Cluster": "00000000000000ff" }, {}]) {
    const stranger = await serve((req, res) => {
      meant.push(req.headers["weir-cluster"] as string | undefined);
      res.writeHead(200, fields).end(allow);
    });
    const weir = new Weir([stranger], { timeout: long, cluster: own });
    assert.equal((await weir.check({ identifierType: "user", identifier: name() })).source, "SOURCE_FAIL_OPEN");
  }
  assert.deepEqual(meant, [own, own]);
  const { cluster } = (await (await fetch(`http://${node}/v1/health`)).json()) as { cluster: string };
  const weir = new Weir([node], { timeout: long, cluster });
  assert.match((await weir.check({ identifierType: "user", identifier: name(), endpoint: "post" })).source, decided);
});

test("most nodes name the cluster, and one that is gone is forgotten", (t) => {
  const all = new Nodes(["a:1", "b:1", "c:1"], 1);
  const a = all.choose([])!;
  const b = all.choose([a])!;
  const c = all.choose([a, b])!;
  assert.deepEqual([all.admit(a, "ff"), all.admit(b, "aa"), all.admit(c, "aa"), all.admit(a, "ff")], [true, false, true, false]);
  assert.equal(all.cluster, "aa");
  let now = 1000;
  t.mock.method(performance, "now", () => now);
  const one = new Nodes(["a:1"], 1);
  const node = one.choose([])!;
  assert.deepEqual([one.admit(node, "aa"), one.admit(node, "ff")], [true, false]);
  const given = new Nodes(["a:1"], 1, "00000000000000aa");
  now += 60_000;
  assert.deepEqual([one.admit(node, "ff"), one.cluster], [true, "ff"]);
  assert.deepEqual([given.admit(given.choose([])!, "ff"), given.cluster], [false, "00000000000000aa"]);
});
