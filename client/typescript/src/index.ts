// The client of Weir, a distributed rate limiter.

import { Denials } from "./denials.js";
import { ask, type Pending, probe } from "./exchange.js";
import { type Answer, type Check, encode, OverloadedError, validate } from "./model.js";
import { type Access, Nodes, rest } from "./nodes.js";
import { Files, type TLSOptions } from "./tls.js";

export { headersOf } from "./headers.js";
export { AccessError, type Answer, type Check, GRPCPortError, InvalidError, OverloadedError, type Policy } from "./model.js";
export type { TLSOptions } from "./tls.js";

const maxBatch = 1000; // checks; a node refuses more
const maxBody = 200 << 10; // bytes of them; a node refuses 256 KiB

export interface Options {
  /**
   * Milliseconds for the nodes to answer, from when a check is sent; 100 unless given. A check that is not sent
   * within that time fails with OverloadedError.
   */
  timeout?: number;
  /** What happens if no node answers: the check is allowed, unless this is false. */
  failOpen?: boolean;
  /** The domain of the rules; "default" unless given. */
  domain?: string;
  /**
   * For how many milliseconds at most a denial is remembered, and the same check denied without asking a node;
   * 1000 unless given. It takes as long for a reset to be seen. 0 asks always.
   */
  rememberDenials?: number;
  /** Requests in flight at most; 4 unless given. */
  maxInFlight?: number;
  /** Checks that wait to be sent at most; 10000 unless given. */
  maxQueue?: number;
  /**
   * The fingerprint of the nodes' cluster, which GET /v1/health has as "cluster". Nodes of another cluster are not
   * used, at any address. The client learns the cluster from the nodes unless it is given.
   */
  cluster?: string;
  /** How connections are encrypted, if the nodes have TLS. */
  tls?: TLSOptions | undefined;
  /** An access token that is shown with every request, instead of a certificate. It needs tls. */
  accessToken?: string | undefined;
}

/** Asks nodes, which are given as host:port of their HTTP. Make one per process. */
export class Weir {
  readonly #nodes: Nodes;
  readonly #denials: Denials;
  readonly #options: Required<Omit<Options, "tls" | "accessToken">>;
  #queue: Pending[] = []; // at most maxQueue
  #inFlight = 0; // at most maxInFlight
  #planned = false; // a look at the queue
  #closed = false;

  constructor(nodes: readonly string[], options: Options = {}) {
    const o = { timeout: 100, failOpen: true, domain: "", rememberDenials: 1000, maxInFlight: 4, maxQueue: 10_000, cluster: "", ...options };
    for (const name of ["timeout", "maxInFlight", "maxQueue"] as const) {
      if (!(o[name] > 0)) {
        throw new RangeError(`${name}: ${o[name]} is not above 0`);
      }
    }
    if (!(o.rememberDenials >= 0)) {
      throw new RangeError(`rememberDenials: ${o.rememberDenials} is below 0`);
    }
    this.#options = o;
    this.#nodes = new Nodes(nodes, 2 * o.maxInFlight, o.cluster, accessOf(options));
    this.#denials = new Denials(o.rememberDenials);
  }

  /**
   * Asks whether something may be done now, and counts it if so. It fails with InvalidError, OverloadedError, AccessError
   * or GRPCPortError. If two nodes are asked, both may count it.
   */
  async check(check: Check): Promise<Answer> {
    const { domain, maxQueue } = this.#options;
    validate(check, domain);
    const known = this.#denials.find(check);
    if (known !== undefined) {
      return known;
    }
    if (this.#closed) {
      throw new Error("the client is closed");
    }
    if (this.#queue.length >= maxQueue) {
      throw new OverloadedError(`${maxQueue} checks of this process wait already`);
    }
    return new Promise((resolve, reject) => {
      this.#queue.push({ check, body: encode(check, domain), since: performance.now(), resolve, reject });
      if (!this.#planned) {
        this.#planned = true;
        queueMicrotask(() => this.#send()); // with what is asked meanwhile
      }
    });
  }

  /** Ends the connections. Checks that wait are answered first. */
  close(): void {
    this.#closed = true;
    this.#end();
  }

  #end(): void {
    if (this.#closed && this.#inFlight === 0 && this.#queue.length === 0) {
      this.#nodes.close();
    }
  }

  #send(): void {
    this.#planned = false;
    while (this.#inFlight < this.#options.maxInFlight && this.#queue.length > 0) {
      const batch = this.#next();
      if (batch.length > 0) {
        this.#inFlight++;
        void this.#settle(batch);
      }
    }
    this.#end();
  }

  /** The checks of the next request. Those that have waited for too long are refused. */
  #next(): Pending[] {
    const { timeout } = this.#options;
    const now = performance.now();
    const once = givesBack(this.#queue[0]!);
    let taken = 0;
    for (let size = 0; taken < Math.min(maxBatch, this.#queue.length); taken++) {
      const pending = this.#queue[taken]!;
      size += 3 * pending.body.length + 1; // of UTF-8, at most
      if (taken > 0 && (size > maxBody || givesBack(pending) !== once)) {
        break;
      }
    }
    const batch = this.#queue.slice(0, taken);
    this.#queue = this.#queue.slice(taken);
    return batch.filter(({ since, reject }) => {
      const late = now - since > timeout;
      if (late) {
        reject(new OverloadedError(`not sent within ${timeout} ms: this process, or the nodes, have too much to do`));
      }
      return !late;
    });
  }

  async #settle(batch: readonly Pending[]): Promise<void> {
    const { timeout, failOpen } = this.#options;
    const rested = this.#nodes.rested();
    if (rested !== undefined) {
      void probe(this.#nodes, rested, Math.min(timeout, rest)); // apart from checks, which would wait for it
    }
    const outcomes = await ask({ nodes: this.#nodes, timeout, failOpen }, batch);
    batch.forEach(({ check, resolve, reject }, i) => {
      const outcome = outcomes[i]!;
      if (outcome instanceof Error) {
        reject(outcome);
        return;
      }
      this.#denials.note(check, outcome);
      resolve(outcome);
    });
    this.#inFlight--;
    this.#send();
  }
}

/** Reads the files of TLS, and checks the access token. */
function accessOf({ tls, accessToken = "" }: Options): Access {
  if (accessToken !== "" && tls === undefined) {
    throw new TypeError("accessToken: it would be sent unencrypted: give tls as well");
  }
  if (!/^[!-~]*$/.test(accessToken)) {
    throw new TypeError("accessToken: it has more than printable ASCII without spaces");
  }
  return { files: tls && new Files(tls), accessToken };
}

/** Whether a check gives tokens back, which is sent to one node only. */
function givesBack({ check }: Pending): boolean {
  return (check.tokens ?? 1) < 0;
}
