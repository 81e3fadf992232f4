import { type Answer, type Check, keyOf } from "./model.js";

export const maxDenials = 10_000;

/**
 * Remembers denials until their retryAfter, and for `longest` milliseconds at most: a reset or a change of
 * rules takes effect then.
 */
export class Denials {
  readonly #longest: number;
  readonly #denied = new Map<string, { tokens: number; answer: Answer; at: number }>(); // at most maxDenials, oldest first

  constructor(longest: number) {
    this.#longest = longest;
  }

  /** The denial that holds for a check: that of the same one, since another cost has another wait. */
  find(check: Check): Answer | undefined {
    if (this.#denied.size === 0) {
      return undefined;
    }
    const key = keyOf(check);
    const known = this.#denied.get(key);
    if (known?.answer.retryAfter === undefined) {
      return undefined;
    }
    const age = performance.now() - known.at;
    if (age >= Math.min(known.answer.retryAfter * 1000, this.#longest)) {
      this.#denied.delete(key);
      return undefined;
    }
    if ((check.tokens ?? 1) !== known.tokens) {
      return undefined;
    }
    const answer = { ...known.answer, retryAfter: known.answer.retryAfter - age / 1000 };
    if (answer.resetAfter !== undefined) {
      answer.resetAfter -= age / 1000;
    }
    return answer;
  }

  /** Remembers a denial. What gives tokens back ends one. */
  note(check: Check, answer: Answer): void {
    const tokens = check.tokens ?? 1;
    if (answer.allowed ? tokens > 0 : !answer.retryAfter) {
      return;
    }
    const key = keyOf(check);
    this.#denied.delete(key);
    if (answer.allowed || this.#longest <= 0) {
      return;
    }
    if (this.#denied.size >= maxDenials) {
      this.#denied.delete(this.#denied.keys().next().value!);
    }
    this.#denied.set(key, { tokens, answer, at: performance.now() });
  }
}
