// What is asked and answered, without any input or output.

/** A request to allow something now. */
export interface Check {
  identifierType: string; // such as "user"
  identifier: string; // such as "alice"
  endpoint?: string;
  tokens?: number; // 1 unless given; negative ones are given back
  attributes?: Record<string, string>;
}

/** What clients may know of a limit. */
export interface Policy {
  name: string; // the rule's id; of its second limit "id[1]"
  limit: number; // tokens per window
  window: number; // seconds; 0 if it follows a calendar
}

/** The decision on a check. Times are in seconds. */
export interface Answer {
  allowed: boolean;
  source: string; // of the decision, such as SOURCE_OWNER
  ruleId: string; // the rule that decided; empty if none did
  remaining: number; // tokens that are left of its limit
  retryAfter?: number; // if denied; undefined if no wait helps
  delay: number; // how long an allowed request has to wait for its turn
  resetAfter?: number; // until all of the limit is free
  policies: Policy[]; // that apply, the one that decided first; none if none decided
  violated: string[]; // names of the policies that deny
}

/** Nodes refuse the check, as it is. */
export class InvalidError extends Error {
  override name = "InvalidError";
}

/**
 * The nodes, or this process, have too much to do for the check. It is not allowed, since overload would
 * be a way around the limits otherwise.
 */
export class OverloadedError extends Error {
  override name = "OverloadedError";
}

/**
 * No node takes a check of this client: it has shown neither a certificate nor an access token with the role for it, or TLS
 * with the nodes fails.
 */
export class AccessError extends Error {
  override name = "AccessError";
}

/** A node was given by the address of its gRPC. Give that of its HTTP. */
export class GRPCPortError extends Error {
  override name = "GRPCPortError";

  constructor(node: string) {
    super(`${node} speaks gRPC, not HTTP: give the HTTP address of the node, which \`weir serve\` prints (port 8080 by default)`);
  }
}

// Bounds of a node, in bytes of UTF-8 unless it says otherwise. What is above them is refused here, since
// an invalid check would have a node refuse the whole batch that it travels in.
const maxName = 64;
export const maxValue = 256;
const maxAttributes = 14; // entries
const maxTokens = 2 ** 31;

/** Fails with InvalidError for what nodes refuse. */
export function validate(check: Check, domain: string): void {
  measure("identifierType", check.identifierType, 1, maxName);
  measure("identifier", check.identifier, 1, maxValue);
  measure("endpoint", check.endpoint ?? "", 0, maxValue);
  measure("domain", domain, 0, maxName);
  const { tokens = 1, attributes = {} } = check;
  if (!Number.isInteger(tokens) || tokens === 0 || Math.abs(tokens) > maxTokens) {
    throw new InvalidError(`tokens: ${tokens} is 0, no integer, or not between ${-maxTokens} and ${maxTokens}`);
  }
  const entries = Object.entries(attributes);
  if (entries.length > maxAttributes) {
    throw new InvalidError(`attributes: ${entries.length} are more than ${maxAttributes}`);
  }
  for (const [key, value] of entries) {
    measure("attributes: a key", key, 1, maxName);
    measure(`attributes[${JSON.stringify(key)}]`, value, 0, maxValue);
    if (key === check.identifierType || key === "endpoint") {
      throw new InvalidError(`attributes: ${JSON.stringify(key)} is the identifierType, or the endpoint`);
    }
  }
}

function measure(name: string, text: unknown, least: number, most: number): void {
  if (typeof text !== "string" || /\p{Surrogate}/u.test(text)) {
    throw new InvalidError(`${name}: must be a well-formed string`);
  }
  const size = Buffer.byteLength(text);
  if (size < least) {
    throw new InvalidError(`${name}: must not be empty`);
  }
  if (size > most) {
    throw new InvalidError(`${name}: ${size} bytes are more than ${most}`);
  }
}

/** The check in JSON, as a node takes it. */
export function encode(check: Check, domain: string): string {
  return JSON.stringify({
    identifier_type: check.identifierType,
    identifier: check.identifier,
    endpoint: check.endpoint,
    tokens_requested: check.tokens,
    attributes: check.attributes,
    domain,
  });
}

/** Equal for checks that differ in nothing but their tokens. */
export function keyOf(check: Check): string {
  const attributes = Object.entries(check.attributes ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
  return JSON.stringify([check.identifierType, check.identifier, check.endpoint ?? "", attributes]);
}

/** The client's own answer. */
export function undecided(failOpen: boolean): Answer {
  const source = failOpen ? "SOURCE_FAIL_OPEN" : "SOURCE_FAIL_CLOSED";
  return { allowed: failOpen, source, ruleId: "", remaining: 0, delay: 0, policies: [], violated: [] };
}

type Message = Record<string, unknown>;

/** Reads an answer from a node's JSON. It fails with TypeError if it is none. */
export function decode(message: unknown): Answer {
  if (typeof message !== "object" || message === null || typeof (message as Message)["allowed"] !== "boolean") {
    throw new TypeError("a response does not say whether it allows");
  }
  const m = message as Message;
  const answer: Answer = {
    allowed: m["allowed"] as boolean,
    source: String(m["source"] ?? ""),
    ruleId: String(m["rule_id"] ?? ""),
    remaining: Number(m["remaining_tokens"] ?? 0),
    delay: seconds(m["delay"]) ?? 0,
    policies: [],
    violated: [],
  };
  const retryAfter = seconds(m["retry_after"]);
  if (!answer.allowed && retryAfter !== undefined) {
    answer.retryAfter = retryAfter;
  }
  const resetAfter = seconds(m["reset_after"]);
  if (resetAfter !== undefined) {
    answer.resetAfter = resetAfter;
    addPolicies(answer, m);
  }
  return answer;
}

/** Adds the policies that apply and are enforced, and those that deny. */
function addPolicies(answer: Answer, m: Message): void {
  const deciding: Policy = { name: answer.ruleId, limit: Number(m["limit"] ?? 0), window: seconds(m["window"]) ?? 0 };
  const others = new Map<string, Policy>();
  const kinds = new Map<string, string[]>(); // different limits of a rule, by its id
  const decidingKind = JSON.stringify([deciding.limit, deciding.window, m["calendar"] ?? ""]);
  for (const limit of (Array.isArray(m["limits"]) ? m["limits"] : []) as Message[]) {
    const id = String(limit["rule_id"]);
    const policy: Policy = { name: id, limit: Number(limit["limit"] ?? 0), window: seconds(limit["window"]) ?? 0 };
    const kind = JSON.stringify([policy.limit, policy.window, limit["calendar"] || "", limit["algorithm"]]);
    const seen = kinds.get(id) ?? [];
    kinds.set(id, seen.includes(kind) ? seen : [...seen, kind]);
    const index = kinds.get(id)!.indexOf(kind);
    policy.name = index === 0 ? id : `${id}[${index}]`;
    if (limit["shadow"] === true) {
      continue;
    }
    if (id === answer.ruleId && kind.startsWith(decidingKind.slice(0, -1))) {
      deciding.name = policy.name;
    }
    if (limit["allowed"] !== true && limit["reset_after"] != null && !answer.violated.includes(policy.name)) {
      answer.violated.push(policy.name);
    }
    others.set(policy.name, policy);
  }
  others.delete(deciding.name);
  answer.policies = [deciding, ...others.values()];
  if (!answer.allowed && answer.violated.length === 0) {
    answer.violated = [deciding.name];
  }
}

/** Reads a duration as JSON has it, such as "1.5s". */
function seconds(duration: unknown): number | undefined {
  return typeof duration === "string" ? Number.parseFloat(duration) : undefined;
}
