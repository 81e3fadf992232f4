// Tests against a real node, whose HTTP is at WEIR_HTTP, with the rules in ../rules.yaml.

import assert from "node:assert/strict";
import { randomUUID as name } from "node:crypto"; // of users whom nobody has counted yet
import { createServer, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { after, test } from "node:test";

import express from "express";

import { type Answer, InvalidError, limit, OverloadedError, Weir } from "./weir.js";

const node = process.env["WEIR_HTTP"] ?? assert.fail("WEIR_HTTP is not set");
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

/** The address of nobody. */
async function unused(): Promise<string> {
  const address = await serve(() => {});
  await new Promise((resolve) => servers.pop()!.close(resolve));
  return address;
}

/** Runs a limited server and returns its address. */
function limited(weir: Weir, answers: Answer[] = []): Promise<string> {
  const app = express();
  app.use(limit(weir, (req) => ["user", req.get("User") ?? ""]));
  app.use((_req, res) => {
    answers.push(res.locals["weir"]);
    res.send("served");
  });
  return serve(app);
}

const get = (address: string, path: string, user: string) => fetch(`http://${address}${path}`, { headers: { User: user } });

const silent: RequestListener = () => {};

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

test("whoever has no name is an address", async () => {
  const answers: Answer[] = [];
  await get(await limited(new Weir([node], { timeout: long }), answers), "/anonymous", "");
  assert.equal(answers[0]?.ruleId, "addresses");
});

test("a check tells when to come back", async () => {
  const weir = new Weir([node], { timeout: long });
  const check = { identifierType: "user", identifier: name(), endpoint: "post" };
  assert.equal((await weir.check({ ...check, tokens: 2 })).source, "SOURCE_OWNER");
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

test("nobody is served who has gone", async () => {
  let asked = () => {};
  const waiting = new Promise<void>((resolve) => (asked = resolve));
  const slow = await serve((_req, res) => {
    res.end('{"allowed":true,"source":"SOURCE_OWNER","rule_id":"queue","delay":"600s"}');
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
    assert.equal(answer.source, "SOURCE_OWNER");
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

test("bad arguments are refused", () => {
  assert.throws(() => new Weir([]), RangeError);
  assert.throws(() => new Weir([node], { timeout: 0 }), RangeError);
  assert.throws(() => new Weir(["a b:1"]), TypeError);
});
