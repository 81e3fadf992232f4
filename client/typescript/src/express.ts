// The middleware for Express.

import { createHash } from "node:crypto";

import type { Request, RequestHandler, Response } from "express";

import { type Answer, headersOf, InvalidError, OverloadedError, type Weir } from "./index.js";
import { maxValue } from "./model.js";

export interface LimitOptions {
  /** What is asked for, instead of the route or the path. */
  endpoint?: (req: Request) => string;
  /** How many tokens a request costs, instead of 1. */
  tokens?: (req: Request) => number;
}

/**
 * A middleware that checks every request. key says who makes it, such as ["user", "alice"]; where the identifier
 * is empty it is the client's address, which Express takes from X-Forwarded-For only if its setting "trust proxy" says
 * so. Rules see as endpoint the route, such as /posts/:id, if the middleware stands behind one, or else the path; the
 * method; and the address as ip. The answer is in res.locals.weir.
 */
export function limit(weir: Weir, key: (req: Request) => [string, string], options: LimitOptions = {}): RequestHandler {
  const { endpoint = endpointOf, tokens } = options;
  return async (req, res, next) => {
    let answer: Answer;
    try {
      const ip = req.ip ?? "";
      const [type, name] = key(req);
      const [identifierType, identifier] = name === "" ? ["ip", ip] : [type, name];
      const attributes = { method: req.method, ...(identifierType !== "ip" && ip !== "" && { ip }) };
      const cost = tokens === undefined ? {} : { tokens: tokens(req) };
      answer = await weir.check({ identifierType, identifier, endpoint: endpoint(req), attributes, ...cost });
    } catch (error) {
      refuse(res, error, next);
      return;
    }
    res.set(headersOf(answer));
    res.locals["weir"] = answer;
    if (!answer.allowed) {
      const violated = answer.violated.length === 0 ? {} : { "violated-policies": answer.violated };
      problem(res, 429, { type: problems + "quota-exceeded", title: "Quota Exceeded", ...violated });
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

/** The route if it is known, and else the path. */
function endpointOf(req: Request): string {
  const route: unknown = (req.route as { path?: unknown } | undefined)?.path;
  return shorten(req.baseUrl + (typeof route === "string" ? route : req.path));
}

/**
 * Of a path that nodes would refuse it keeps the beginning and the end, with 32 digits of its hash between
 * them: different paths stay different, and conditions on how one begins or ends hold.
 */
function shorten(path: string): string {
  const bytes = Buffer.from(path);
  if (bytes.length <= maxValue) {
    return path;
  }
  const hash = `~${createHash("sha256").update(bytes).digest("hex").slice(0, 32)}~`;
  const ascii = encodeURI(path).replace(/%25/g, "%"); // it is, unless a server in front has decoded it
  const keep = (maxValue - hash.length) >> 1;
  return ascii.slice(0, keep) + hash + ascii.slice(-keep);
}

const problems = "https://iana.org/assignments/http-problem-types#";

/** Answers a request that was not decided. */
function refuse(res: Response, error: unknown, next: (error: unknown) => void): void {
  if (error instanceof InvalidError) {
    problem(res, 400, { type: "about:blank", title: "Bad Request", detail: error.message });
  } else if (error instanceof OverloadedError) {
    res.set("Retry-After", "1");
    problem(res, 503, { type: problems + "temporary-reduced-capacity", title: "Temporary Reduced Capacity" });
  } else {
    next(error);
  }
}

/** Answers with a problem document: RFC 9457. */
function problem(res: Response, status: number, document: Record<string, unknown>): void {
  res.status(status).type("application/problem+json").send(JSON.stringify({ ...document, status }));
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
