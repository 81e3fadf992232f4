import { Agent } from "node:http";

import { AccessError } from "./model.js";
import { type Files, SecureAgent } from "./tls.js";

export const forgotten = 60_000; // milliseconds without a node of the client's cluster, after which its nodes are taken to be another's
export const rest = 1000; // milliseconds for which a node that has not answered is not asked

/** The HTTP of a node. */
export interface Node {
  readonly address: string; // as host:port
  readonly url: URL;
  readonly agent: Agent;
  restsUntil: number | undefined; // undefined if it has answered last
  cluster: string | undefined; // that it has named last
  refusal: AccessError | undefined; // if it has failed by one last
}

/** How nodes are asked. */
export interface Access {
  readonly files?: Files | undefined; // of TLS; undefined if connections are not encrypted
  readonly accessToken?: string; // shown with every request; "" for none
}

/**
 * Remembers which nodes do not answer, and which cluster they belong to. The client's cluster is the one that it was
 * given, or else the one that the most nodes have named; of several, the one that was so first.
 */
export class Nodes {
  #cluster: string | undefined;
  readonly #given: boolean;
  readonly fields: Record<string, string>; // of the header of each request
  #met = 0; // when a node of that cluster has replied last
  readonly #nodes: Node[];

  constructor(addresses: readonly string[], maxSockets: number, cluster = "", { files, accessToken = "" }: Access = {}) {
    if (addresses.length === 0) {
      throw new RangeError("nodes: give at least one");
    }
    this.#given = cluster !== "";
    if (this.#given && !/^[0-9a-f]{16}$/.test(cluster)) {
      throw new RangeError(`cluster: ${JSON.stringify(cluster)} is not 16 hexadecimal digits`);
    }
    this.#cluster = this.#given ? cluster : undefined;
    this.fields = accessToken === "" ? {} : { Authorization: `Bearer ${accessToken}` };
    const options = { keepAlive: true, maxSockets, noDelay: true };
    this.#nodes = [...new Set(addresses)].map((address) => {
      const url = new URL("/v1/check:batch", `${files === undefined ? "http" : "https"}://${address}`);
      if (address.includes("/") || !/:\d+$/.test(address)) {
        throw new TypeError(`nodes: ${JSON.stringify(address)} is not host:port`);
      }
      const agent = files === undefined ? new Agent(options) : new SecureAgent(files, options);
      return { address, url, agent, restsUntil: undefined, cluster: undefined, refusal: undefined };
    });
  }

  /**
   * A node that answers, as far as is known, and was not tried; or else one that has rested, for one caller.
   * Undefined if all others rest.
   */
  choose(tried: readonly Node[]): Node | undefined {
    const fresh = this.#nodes.filter((node) => !tried.includes(node));
    const answering = fresh.filter((node) => node.restsUntil === undefined);
    if (answering.length > 0) {
      return answering[Math.floor(Math.random() * answering.length)];
    }
    const now = performance.now();
    const rested = fresh.filter((node) => now >= node.restsUntil!);
    const node = rested[Math.floor(Math.random() * rested.length)];
    if (node !== undefined) {
      node.restsUntil = now + rest; // others do not wait for it meanwhile
    }
    return node;
  }

  /**
   * A node that has rested while another answers, for one caller, who finds out whether it is back. Checks are not sent
   * to it before.
   */
  rested(): Node | undefined {
    const now = performance.now();
    if (this.#nodes.every((node) => node.restsUntil !== undefined)) {
      return undefined; // choose has checks sent to one
    }
    const node = this.#nodes.find(({ restsUntil }) => restsUntil !== undefined && now >= restsUntil);
    if (node !== undefined) {
      node.restsUntil = now + rest;
    }
    return node;
  }

  /** Whether a node answers that was not tried. */
  hasOther(tried: readonly Node[]): boolean {
    return this.#nodes.some((node) => node.restsUntil === undefined && !tried.includes(node));
  }

  /** The client's cluster; "any" until a node has named one. */
  get cluster(): string {
    return this.#cluster ?? "any";
  }

  /**
   * Whether a node that has named this cluster is of the client's. One that names none is of a version that does not,
   * and is of no cluster that the client was given.
   */
  admit(node: Node, cluster: string | undefined): boolean {
    if (cluster === undefined) {
      return !this.#given;
    }
    const now = performance.now();
    node.cluster = cluster;
    if (cluster !== this.#cluster && this.#moves(cluster, now)) {
      this.#cluster = cluster;
    }
    if (cluster !== this.#cluster) {
      return false;
    }
    this.#met = now;
    return true;
  }

  #moves(cluster: string, now: number): boolean {
    const naming = (name: string | undefined) => this.#nodes.filter((node) => node.cluster === name).length;
    const own = naming(this.#cluster);
    if (this.#given) {
      return false;
    }
    if (this.#cluster === undefined) {
      return true;
    }
    return own === 0 ? now - this.#met >= forgotten : naming(cluster) > own;
  }

  answered(node: Node): void {
    node.restsUntil = undefined;
    node.refusal = undefined;
  }

  /** Notes that a node has not answered, for any error. */
  failed(node: Node, error?: Error): void {
    node.restsUntil = performance.now() + rest;
    node.refusal = error instanceof AccessError ? error : undefined;
  }

  /** The error of one of the nodes, if all of them have refused this client last. */
  refusal(): AccessError | undefined {
    return this.#nodes.every((node) => node.refusal !== undefined) ? this.#nodes[0]!.refusal : undefined;
  }

  close(): void {
    this.#nodes.forEach((node) => node.agent.destroy());
  }
}
