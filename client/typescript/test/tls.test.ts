// Tests against two nodes with TLS, whose HTTP is at WEIR_NODES, separated by a comma, and the gRPC of one at WEIR_GRPC; with
// the rules in ../../test-rules.yaml. WEIR_CERTS is a directory of weir certs, with the clients "checks" and "scrapes" of the
// roles check and metrics. WEIR_FOREIGN_CERTS has those of another CA. WEIR_TOKEN is a token with the role check.

import assert from "node:assert/strict";
import { randomUUID as name } from "node:crypto"; // of users that no test has used
import { copyFileSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { createServer as createTLSServer } from "node:tls";

import express from "express";

import { limit } from "../src/express.js";
import { AccessError, GRPCPortError, type Options, type TLSOptions, Weir } from "../src/index.js";
import { Files } from "../src/tls.js";

const env = (name: string) => process.env[name] ?? assert.fail(`${name} is not set`);
const nodes = env("WEIR_NODES").split(",");
const [first = "", second = ""] = nodes;
const certs = env("WEIR_CERTS");
const foreign = env("WEIR_FOREIGN_CERTS");
const accessToken = env("WEIR_TOKEN");
const decided = /^SOURCE_(OWNER|STANDBY|LENT)$/; // as exact as each other
const long = 20_000; // milliseconds; far above every timeout below

const cleanups: (() => void)[] = [];
after(() => cleanups.forEach((cleanup) => cleanup()));

/** Has a server listen until the tests end, and returns its address. */
async function serve(server: Server, host = "127.0.0.1"): Promise<string> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => sockets.add(socket.on("error", () => {})));
  server.on("stop", () => {
    server.close();
    sockets.forEach((socket) => socket.destroy());
  });
  cleanups.push(() => server.emit("stop"));
  await new Promise<void>((resolve) => server.listen(0, host, resolve));
  return `${host}:${(server.address() as { port: number }).port}`;
}

/** A server that stands before a node. */
function forwarder(node: string): Server {
  const [host, port] = node.split(":");
  return createServer((socket) => {
    const inner = connect(Number(port), host);
    socket.pipe(inner).pipe(socket);
    socket.on("error", () => inner.destroy()).on("close", () => inner.destroy());
    inner.on("error", () => socket.destroy());
  });
}

/** An address on which no server listens. */
async function unused(): Promise<string> {
  const server = createServer();
  const address = await serve(server);
  await new Promise((resolve) => server.close(resolve));
  return address;
}

/** The files of a client, only the CA without one. */
function files(client = "", directory = certs, ca = directory): TLSOptions {
  const pair = client === "" ? {} : { certFile: join(directory, `client-${client}.crt`), keyFile: join(directory, `client-${client}.key`) };
  return { caFile: join(ca, "ca.crt"), ...pair };
}

function client(options: Options, addresses: string[] = nodes): Weir {
  const weir = new Weir(addresses, { timeout: long, rememberDenials: 0, ...options });
  cleanups.push(() => weir.close());
  return weir;
}

const login = (weir: Weir, user = name(), tokens = 1) => weir.check({ identifierType: "user", identifier: user, endpoint: "login", tokens });

/** The nodes count: of four logins three are allowed. */
async function limited(weir: Weir): Promise<void> {
  const user = name();
  for (const allowed of [true, true, true, false]) {
    const answer = await login(weir, user);
    assert.equal(answer.allowed, allowed);
    assert.match(answer.source, decided);
  }
}

/** Each check fails with AccessError, those too that come while the nodes are left alone. */
async function refused(weir: Weir, message: RegExp, tokens = 1): Promise<void> {
  for (let i = 0; i < 3; i++) {
    await assert.rejects(login(weir, name(), tokens), (error) => error instanceof AccessError && message.test(error.message));
  }
}

test("a certificate permits checks", () => limited(client({ tls: files("checks") })));

test("a token permits checks", () => limited(client({ tls: files(), accessToken })));

test("a token comes before a certificate", () => limited(client({ tls: files("scrapes"), accessToken })));

test("many checks at once travel together, on connections that are used again", async () => {
  const weir = client({ tls: files(), accessToken });
  const users = Array.from({ length: 300 }, () => name());
  for (const allowed of [true, true, true, false]) {
    const answers = await Promise.all(users.map((user) => login(weir, user)));
    assert.ok(answers.every((answer) => answer.allowed === allowed && decided.test(answer.source)));
  }
});

test("neither a certificate nor a token", () => refused(client({ tls: files() }), /neither a certificate of a client nor a token.*role "check"/));

test("an unknown token", () => refused(client({ tls: files("checks"), accessToken: "weir_x" }), /the token is unknown or revoked/));

test("another role", () => refused(client({ tls: files("scrapes") }), /client "scrapes".*has not the role "check"/));

test("tokens given back without a certificate", () => refused(client({ tls: files() }), /role "check"/, -1));

test("another CA", async () => {
  await refused(client({ tls: files("checks", certs, foreign) }), /^the certificate of .* is not valid/);
  await refused(client({ tls: {} }), /^the certificate of .* is not valid/);
});

test("another host", async () => {
  const address = await serve(forwarder(first), "127.0.0.2"); // for which the node's certificate is not
  await refused(client({ tls: files("checks") }, [address]), /^the certificate of 127\.0\.0\.2:\d+ is not valid: .*127\.0\.0\.2/);
});

test("a certificate of another CA", () =>
  refused(client({ tls: { ...files("checks", foreign), ...files() } }), /refuses this client's certificate/));

test("nodes with TLS and a client without", () => refused(client({}), /has TLS: give tls/));

test("a client with TLS and nodes without", async () => {
  const plain = createServer((socket) => socket.end("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n400 Bad Request"));
  await refused(client({ tls: files() }, [await serve(plain)]), /has no TLS|^TLS with/);
});

test("the port of gRPC", async () => {
  const grpc = env("WEIR_GRPC");
  const names = (error: unknown): boolean => error instanceof GRPCPortError && error.message.startsWith(`${grpc} speaks gRPC, not HTTP`);
  await assert.rejects(login(client({ tls: files("checks") }, [grpc])), names);
});

test("a proxy without ALPN whose node does not answer is a node that does not answer", async () => {
  const pair = { cert: readFileSync(join(certs, "node-a.crt")), key: readFileSync(join(certs, "node-a.key")) };
  const proxy = await serve(createTLSServer(pair, (socket) => socket.once("data", () => socket.destroy())).on("tlsClientError", () => {}));
  assert.equal((await login(client({ tls: files("checks") }, [proxy]))).source, "SOURCE_FAIL_OPEN");
});

test("other nodes are asked instead of those that refuse, do not speak, or have another CA's certificate", async () => {
  const pair = { cert: readFileSync(join(foreign, "node-a.crt")), key: readFileSync(join(foreign, "node-a.key")) };
  const other = await serve(createTLSServer(pair).on("tlsClientError", () => {}));
  const mute = await serve(createServer(() => {}));
  for (const addresses of [[await unused(), first], [other, first], [mute, second], [await unused(), other, mute, ...nodes]]) {
    const weir = client({ tls: files("checks"), timeout: 4000 }, addresses);
    for (let i = 0; i < 4; i++) {
      assert.match((await login(weir)).source, decided);
    }
  }
});

test("a node dies", async () => {
  const dying = forwarder(first);
  const weir = client({ tls: files(), accessToken, timeout: 4000 }, [await serve(dying), second]);
  const user = name();
  let allowed = 0;
  for (let i = 0; i < 12; i++) {
    if (i === 6) {
      dying.emit("stop");
    }
    const answer = await login(weir, user);
    assert.match(answer.source, decided);
    allowed += answer.allowed ? 1 : 0;
  }
  assert.equal(allowed, 3);
});

test("nodes that do not answer have refused nothing", async () => {
  for (const failOpen of [true, false]) {
    const weir = client({ tls: files("checks"), timeout: 1000, failOpen }, [await unused()]);
    assert.equal((await login(weir)).allowed, failOpen);
  }
});

test("the middleware hands the error on", async () => {
  const app = express();
  app.use(limit(client({ tls: files() }), () => ["user", name()]));
  app.use((_req, res) => void res.send("served"));
  app.use(((error, _req, res, _next) => void res.status(500).send(String(error))) as express.ErrorRequestHandler);
  const server = app.listen(0, "127.0.0.1");
  cleanups.push(() => (server.close(), server.closeAllConnections()));
  await new Promise((resolve) => server.on("listening", resolve));
  const reply = await fetch(`http://127.0.0.1:${(server.address() as { port: number }).port}/`);
  assert.equal(reply.status, 500);
  assert.match(await reply.text(), /^AccessError: .*role "check"/);
});

test("changed files are in force for the next connection, and broken ones are not", async () => {
  const own = mkdtempSync(join(tmpdir(), "weir-"));
  cleanups.push(() => rmSync(own, { recursive: true }));
  const put = (source: string): void => {
    for (const end of ["ca.crt", "client-checks.crt", "client-checks.key"]) {
      copyFileSync(join(source, end), join(own, "new"));
      renameSync(join(own, "new"), join(own, end));
    }
  };
  put(foreign);
  const weir = client({ tls: files("checks", own) });
  await refused(weir, /is not valid/);
  put(certs);
  for (const until = performance.now() + long; ; ) {
    const failed = await login(weir).then(() => undefined, (error: unknown) => error);
    if (failed === undefined) {
      break;
    }
    assert.ok(failed instanceof AccessError && performance.now() < until, String(failed));
    await new Promise((resolve) => setTimeout(resolve, 50)); // the nodes are left alone for a moment
  }
  await limited(weir);
  const read = new Files(files("checks", own));
  const before = read.context();
  assert.equal(read.context(), before);
  writeFileSync(join(own, "client-checks.key"), "broken");
  const warned = new Promise<Error>((resolve) => process.once("warning", resolve));
  assert.equal(read.context(), before);
  assert.match((await warned).message, /client-checks\.key: .*: the files before stay in force/);
  put(certs);
  assert.notEqual(read.context(), before);
});

test("bad options", () => {
  const caFile = join(certs, "ca.crt");
  const [certFile, keyFile, missing] = [join(certs, "client-checks.crt"), join(certs, "client-checks.key"), join(certs, "missing")];
  for (const [options, message] of [
    [{ accessToken }, /^accessToken: it would be sent unencrypted: give tls/],
    [{ tls: { caFile }, accessToken: "a b" }, /^accessToken: it has more than printable ASCII without spaces/],
    [{ tls: { caFile }, accessToken: "a\r\nb" }, /^accessToken: it has more/],
    [{ tls: { caFile: missing } }, /^tls: caFile: .*missing: ENOENT/],
    [{ tls: { caFile: keyFile } }, /^tls: caFile: .*client-checks\.key has no certificate in PEM/],
    [{ tls: { caFile, certFile } }, /^tls: certFile and keyFile: give both or none/],
    [{ tls: { caFile, keyFile } }, /^tls: certFile and keyFile: give both or none/],
    [{ tls: { caFile, certFile, keyFile: missing } }, /^tls: keyFile: .*missing: ENOENT/],
    [{ tls: { caFile, certFile, keyFile: join(certs, "client-scrapes.key") } }, /^tls: .*client-scrapes\.key: .*mismatch/],
  ] as [Options, RegExp][]) {
    assert.throws(() => client(options), (error) => error instanceof TypeError && message.test(error.message), String(message));
  }
});
