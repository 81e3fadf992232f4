// Limits an Express server by asking nodes of Weir over HTTP. Copy this file; it needs
// Node.js 18 and Express.
//
//   const weir = new Weir(["127.0.0.1:8080", "127.0.0.1:8081"]);
//   app.use(limit(weir, (req) => ["user", req.get("User") ?? ""]));
//
// A check takes no longer than its timeout. If no node has answered by then, it is let
// through, with the source SOURCE_FAIL_OPEN; or it is denied, with failOpen: false.

import type { Request, RequestHandler, Response } from "express";

/** Something to be allowed. */
export interface Check {
  identifierType: string; // such as "user"
  identifier: string; // such as "alice"
  endpoint?: string;
  tokens?: number; // 1 unless given
  attributes?: Record<string, string>;
}

/** What a node has answered. */
export interface Answer {
  allowed: boolean;
  source: string; // who has decided, such as SOURCE_OWNER
  ruleId: string; // the rule that decided; empty if none did
  retryAfter?: number; // seconds, if denied; undefined if no wait helps
  delay: number; // seconds that an allowed request has to wait for its turn
  headers: Record<string, string>; // what the client may know, such as RateLimit
}

/** Nodes refuse the check, as it is. */
export class InvalidError extends Error {}

/** Weir has no time for the check. It is not let through: that would be a way in. */
export class OverloadedError extends Error {}

export interface Options {
  timeout?: number; // milliseconds, 100 unless given
  failOpen?: boolean; // true unless given
  domain?: string; // of the rules
}

/** Asks nodes, which are given as host:port of their HTTP, one after the other. */
export class Weir {
  readonly #nodes: string[];
  readonly #timeout: number;
  readonly #failOpen: boolean;
  readonly #domain: string;

  constructor(nodes: string[], { timeout = 100, failOpen = true, domain = "" }: Options = {}) {
    if (nodes.length === 0 || !(timeout > 0)) {
      throw new RangeError("nodes: give at least one, and a timeout above 0");
    }
    this.#nodes = nodes.map((node) => new URL("/v1/check", `http://${node}`).href);
    this.#timeout = timeout;
    this.#failOpen = failOpen;
    this.#domain = domain;
  }

  /**
   * Asks whether something may be done now, and counts it if so. It fails with
   * InvalidError or OverloadedError. Of two nodes that are asked both may count.
   */
  async check(check: Check): Promise<Answer> {
    const body = JSON.stringify({
      identifier_type: check.identifierType,
      identifier: check.identifier,
      endpoint: check.endpoint,
      tokens_requested: check.tokens,
      attributes: check.attributes,
      domain: this.#domain,
    });
    const due = performance.now() + this.#timeout;
    const first = Math.floor(Math.random() * this.#nodes.length);
    for (let i = 0; i < this.#nodes.length; i++) {
      const left = due - performance.now();
      const last = i === this.#nodes.length - 1;
      const answer = await ask(this.#nodes[(first + i) % this.#nodes.length]!, body, last ? left : left / 2);
      if (answer !== undefined) {
        return answer;
      }
    }
    const source = this.#failOpen ? "SOURCE_FAIL_OPEN" : "SOURCE_FAIL_CLOSED";
    return { allowed: this.#failOpen, source, ruleId: "", delay: 0, headers: {} };
  }
}

/** Asks one node. The answer is undefined if there is none in so many milliseconds. */
async function ask(url: string, body: string, timeout: number): Promise<Answer | undefined> {
  let message: Record<string, unknown>;
  let fields: Headers;
  try {
    const signal = AbortSignal.timeout(Math.max(1, Math.ceil(timeout)));
    const headers = { "Content-Type": "application/json" };
    const response = await fetch(url, { method: "POST", headers, body, signal });
    message = (await response.json()) ?? {};
    fields = response.headers;
  } catch {
    return undefined;
  }
  if (typeof message["allowed"] === "boolean") {
    return {
      allowed: message["allowed"],
      source: String(message["source"]),
      ruleId: String(message["rule_id"]),
      retryAfter: seconds(message["retry_after"]),
      delay: seconds(message["delay"]) ?? 0,
      headers: Object.fromEntries([...fields].filter(([name]) => /ratelimit|^retry-after$/.test(name))),
    };
  }
  switch (message["code"]) {
    case 3: // INVALID_ARGUMENT of gRPC
      throw new InvalidError(String(message["message"]));
    case 8: // RESOURCE_EXHAUSTED
      throw new OverloadedError(String(message["message"]));
  }
  return undefined;
}

/** Reads a duration as JSON has it, such as "1.5s". */
function seconds(duration: unknown): number | undefined {
  return typeof duration === "string" ? Number.parseFloat(duration) : undefined;
}

/**
 * A middleware that checks every request. key says who makes it, such as
 * ["user", "alice"]; where the identifier is empty it is the client's address, which
 * Express takes from X-Forwarded-For only if its setting "trust proxy" says so. Rules see
 * the path as endpoint, the method, and the address as ip. The answer is in
 * res.locals.weir.
 */
export function limit(weir: Weir, key: (req: Request) => [string, string]): RequestHandler {
  return async (req, res, next) => {
    const ip = req.ip ?? "";
    const [type, name] = key(req);
    const [identifierType, identifier] = name === "" ? ["ip", ip] : [type, name];
    const attributes = { method: req.method, ...(identifierType !== "ip" && ip !== "" && { ip }) };
    let answer: Answer;
    try {
      answer = await weir.check({ identifierType, identifier, endpoint: req.path, attributes });
    } catch (error) {
      if (error instanceof InvalidError) {
        refuse(res, 400, { type: "about:blank", title: "Bad Request", detail: error.message });
      } else if (error instanceof OverloadedError) {
        res.set("Retry-After", "1");
        refuse(res, 503, { type: problems + "temporary-reduced-capacity", title: "Temporary Reduced Capacity" });
      } else {
        next(error);
      }
      return;
    }
    res.set(answer.headers);
    res.locals["weir"] = answer;
    if (!answer.allowed) {
      const violated = answer.ruleId === "" ? {} : { "violated-policies": [answer.ruleId] };
      refuse(res, 429, { type: problems + "quota-exceeded", title: "Quota Exceeded", ...violated });
      return;
    }
    if (answer.delay > 0) {
      await turn(res, answer.delay);
    }
    if (!res.destroyed) {
      next();
    }
  };
}

const problems = "https://iana.org/assignments/http-problem-types#";

/** Answers with a problem document: RFC 9457. */
function refuse(res: Response, status: number, problem: Record<string, unknown>): void {
  res.status(status).type("application/problem+json").send(JSON.stringify({ ...problem, status }));
}

/** Waits for so many seconds, or until the client has gone. */
function turn(res: Response, delay: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(done, Math.ceil(delay * 1000));
    res.on("close", done);
    function done(): void {
      clearTimeout(timer);
      res.off("close", done);
      resolve();
    }
  });
}
