import { LiveClock } from "./clock.js";
import { type Call, type Outcome, post } from "./http.js";
import { AccessError, type Answer, type Check, decode, GRPCPortError, InvalidError, OverloadedError, undecided } from "./model.js";
import type { Node, Nodes } from "./nodes.js";

const invalidArgument = 3; // codes of gRPC
const resourceExhausted = 8;

/** A check that waits for its answer. */
export interface Pending {
  readonly check: Check;
  readonly body: string;
  readonly since: number;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: Error) => void;
}

export interface Terms {
  readonly nodes: Nodes;
  readonly timeout: number;
  readonly failOpen: boolean;
}

/** A node refused a batch as invalid, and has counted nothing. */
class Refused extends Error {}

/** An answer or an error for every check, within about the timeout. */
export async function ask(terms: Terms, batch: readonly Pending[]): Promise<(Answer | Error)[]> {
  const round = new Round(terms, batch);
  try {
    return await round.run();
  } catch (error) {
    if (!(error instanceof Refused)) {
      return batch.map(() => error as Error);
    }
    if (batch.length === 1) {
      return [new InvalidError(error.message.replace(/^requests\[0\]\./, ""))];
    }
  } finally {
    round.close();
  }
  const half = batch.length >> 1;
  return [...(await ask(terms, batch.slice(0, half))), ...(await ask(terms, batch.slice(half)))];
}

/** Sends a node a request without checks, and notes whether it replies to it. */
export async function probe(nodes: Nodes, node: Node, timeout: number): Promise<void> {
  const call = post(nodes, node, '{"requests":[]}', false);
  const clock = new LiveClock();
  void clock.reach(timeout).then(() => call.abort());
  const { message, cluster, error } = await call.done;
  clock.stop();
  const { code } = (message ?? {}) as { code?: unknown };
  if (error === undefined && nodes.admit(node, cluster) && (code === invalidArgument || code === resourceExhausted)) {
    nodes.answered(node);
  } else {
    nodes.failed(node, error);
  }
}

/**
 * What is under way for one batch. It asks one node, and another one if the first is silent for half of the
 * time. An answer of the first that comes later counts as well: a check that either allows is allowed, as both
 * have counted it.
 */
class Round {
  readonly #terms: Terms;
  readonly #batch: readonly Pending[];
  readonly #body: string;
  readonly #once: boolean; // tokens that are given back twice would free tokens in use
  readonly #clock = new LiveClock();
  readonly #tried: Node[] = [];
  readonly #answers = new Map<number, Answer>();
  readonly #calls = new Set<Call>();

  constructor(terms: Terms, batch: readonly Pending[]) {
    this.#terms = terms;
    this.#batch = batch;
    this.#body = `{"requests":[${batch.map((pending) => pending.body).join(",")}]}`;
    this.#once = batch.some(({ check }) => (check.tokens ?? 1) < 0);
  }

  close(): void {
    this.#clock.stop();
    this.#calls.forEach((call) => call.abort()); // nothing reads what may still come
  }

  async run(): Promise<(Answer | Error)[]> {
    const { nodes, timeout, failOpen } = this.#terms;
    this.#start();
    while (this.#calls.size > 0) {
      const mayAskAnother = this.#calls.size === 1 && !this.#once && nodes.hasOther(this.#tried);
      const over = this.#clock.reach(mayAskAnother ? timeout / 2 : timeout).then(() => undefined);
      const outcome = await Promise.race([...[...this.#calls].map((call) => call.done), over]);
      if (outcome === undefined) {
        this.#calls.forEach(({ node }) => nodes.failed(node));
        if (!mayAskAnother) {
          break;
        }
        this.#start();
        continue;
      }
      this.#calls.delete(outcome.call);
      this.#take(outcome);
      if (this.#answers.size === this.#batch.length && [...this.#answers.values()].every(({ allowed }) => allowed)) {
        break;
      }
    }
    const refusal = this.#answers.size === 0 ? nodes.refusal() : undefined;
    if (refusal !== undefined) {
      throw refusal;
    }
    return this.#batch.map((_, i) => this.#answers.get(i) ?? undecided(failOpen));
  }

  /** Asks a node that was not asked yet, if there is one. */
  #start(): void {
    const node = this.#terms.nodes.choose(this.#tried);
    if (node !== undefined) {
      this.#tried.push(node);
      this.#calls.add(post(this.#terms.nodes, node, this.#body, this.#once));
    }
  }

  /** Takes a reply in. Fails if it refuses all checks. */
  #take({ call: { node }, message, cluster, error }: Outcome): void {
    const { nodes } = this.#terms;
    if (error instanceof GRPCPortError) {
      throw error;
    }
    if (error instanceof AccessError || !nodes.admit(node, cluster)) {
      nodes.failed(node, error); // nothing was counted in the client's cluster
      if (this.#calls.size === 0 && this.#clock.elapsed < this.#terms.timeout) {
        this.#start();
      }
      return;
    }
    const { code, message: text, responses } = (message ?? {}) as { code?: unknown; message?: unknown; responses?: unknown };
    if (code === invalidArgument) {
      throw new Refused(String(text));
    }
    if (code === resourceExhausted) {
      throw new OverloadedError(String(text));
    }
    let answers: Answer[] = [];
    try {
      answers = Array.isArray(responses) ? responses.map(decode) : [];
    } catch {
      // it is none
    }
    if (answers.length !== this.#batch.length) {
      nodes.failed(node);
      const unsent = (error as { code?: string } | undefined)?.code === "ECONNREFUSED";
      if (this.#calls.size === 0 && (unsent || !this.#once) && this.#clock.elapsed < this.#terms.timeout) {
        this.#start();
      }
      return;
    }
    nodes.answered(node);
    answers.forEach((answer, i) => {
      if (answer.allowed || !this.#answers.has(i)) {
        this.#answers.set(i, answer);
      }
    });
  }
}
