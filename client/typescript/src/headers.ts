// The header fields in which clients are told of limits.

import type { Answer, Policy } from "./model.js";

const maxPolicies = 8; // as a node has it
const jitter = 0.1; // of the wait, at most, so that not all clients come back at once

/**
 * The header fields of an answer: RateLimit-Policy, RateLimit, X-RateLimit-* and Retry-After, as nodes
 * write them by default. There are none if no limit has decided.
 */
export function headersOf(answer: Answer): Record<string, string> {
  const fields: Record<string, string> = {};
  const wait = answer.retryAfter === undefined ? 0 : whole(answer.retryAfter * (1 + Math.random() * jitter));
  const [deciding] = answer.policies;
  if (deciding !== undefined) {
    const reset = whole(answer.resetAfter ?? 0);
    fields["RateLimit-Policy"] = answer.policies.slice(0, maxPolicies).map(policyItem).join(", ");
    fields["RateLimit"] = `${quoted(deciding.name)};r=${answer.remaining};t=${wait || reset}`;
    fields["X-RateLimit-Limit"] = String(deciding.limit);
    fields["X-RateLimit-Remaining"] = String(answer.remaining);
    fields["X-RateLimit-Reset"] = String(reset);
    if (wait > 0) {
      fields["X-RateLimit-Retry-After"] = String(wait);
    }
  }
  if (wait > 0) {
    fields["Retry-After"] = String(wait);
  }
  return fields;
}

function policyItem(policy: Policy): string {
  return `${quoted(policy.name)};q=${policy.limit}` + (policy.window > 0 ? `;w=${whole(policy.window)}` : "");
}

/** A string of RFC 9651, which is ASCII. */
function quoted(name: string): string {
  return `"${name.replace(/[^\x20-\x7e]/gu, encodeURIComponent).replace(/["\\]/g, "\\$&")}"`;
}

function whole(seconds: number): number {
  return Math.ceil(seconds);
}
