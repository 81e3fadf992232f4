// How connections to nodes are encrypted, and what proves who asks.

import { readFileSync, statSync } from "node:fs";
import { Agent, type AgentOptions } from "node:https";
import { createSecureContext, type SecureContext, type TLSSocket } from "node:tls";

import { AccessError, GRPCPortError } from "./model.js";

/**
 * Encrypts connections to nodes. Files are in PEM. Changed files are in force for new connections; if they cannot be used,
 * those before stay in force.
 */
export interface TLSOptions {
  /** The CA of the cluster. Without it nodes are verified by the CAs that Node.js knows. */
  caFile?: string;
  /** The certificate of this client. An access token does instead. */
  certFile?: string;
  /** The key of the certificate. */
  keyFile?: string;
}

const fields = { ca: "caFile", cert: "certFile", key: "keyFile" } as const;
const names = Object.entries(fields) as ["ca" | "cert" | "key", "caFile" | "certFile" | "keyFile"][];

/** The contents of files, as they are now. Several agents share it. */
export class Files {
  readonly #options: TLSOptions;
  #context: SecureContext;
  #state: string;

  constructor(options: TLSOptions) {
    if ((options.certFile === undefined) !== (options.keyFile === undefined)) {
      throw new TypeError("tls: certFile and keyFile: give both or none");
    }
    this.#options = options;
    this.#state = this.#stateNow();
    this.#context = this.#load();
  }

  /** For the next connection. */
  context(): SecureContext {
    const state = this.#stateNow();
    if (state !== this.#state) {
      try {
        this.#context = this.#load();
        this.#state = state;
      } catch (error) {
        process.emitWarning(`${(error as Error).message}: the files before stay in force`, "WeirWarning");
      }
    }
    return this.#context;
  }

  #load(): SecureContext {
    const contents: { ca?: Buffer; cert?: Buffer; key?: Buffer } = {};
    for (const [part, field] of names) {
      const path = this.#options[field];
      if (path !== undefined) {
        contents[part] = attempt(`tls: ${field}: ${path}`, () => readFileSync(path));
        if (part === "ca" && !contents[part].includes("-----BEGIN CERTIFICATE-----")) {
          throw new TypeError(`tls: ${field}: ${path} has no certificate in PEM`); // or else it would be ignored
        }
      }
    }
    const { caFile, certFile, keyFile } = this.#options;
    const paths = [caFile, certFile, keyFile].filter((path) => path !== undefined).join(", ");
    return attempt(`tls: ${paths}`, () => createSecureContext({ ...contents, minVersion: "TLSv1.3" }));
  }

  /** Differs from what it was if a file has changed. */
  #stateNow(): string {
    return names
      .map(([, field]) => this.#options[field])
      .map((path) => (path === undefined ? undefined : statSync(path, { bigint: true, throwIfNoEntry: false })))
      .map((found) => (found === undefined ? "" : `${found.ino} ${found.size} ${found.mtimeNs}`))
      .join();
  }
}

/** Has an error say what failed. */
function attempt<T>(what: string, f: () => T): T {
  try {
    return f();
  } catch (error) {
    throw new TypeError(`${what}: ${(error as Error).message}`, { cause: error });
  }
}

/** Keeps encrypted connections to a node. New ones are made by the files as they are then. */
export class SecureAgent extends Agent {
  readonly #files: Files;

  constructor(files: Files, options: AgentOptions) {
    super({ ...options, ALPNProtocols: ["http/1.1"] });
    this.#files = files;
  }

  override createConnection(...[options, done]: Parameters<Agent["createConnection"]>): ReturnType<Agent["createConnection"]> {
    return super.createConnection({ ...options, secureContext: this.#files.context() } as typeof options, done);
  }
}

/** The error of a request by TLS: an AccessError if it says that the client and the node refuse each other. */
export function explain(address: string, error: Error & { code?: string }, socket: TLSSocket | undefined): Error {
  const { code = "", message } = error;
  if (socket?.authorizationError) {
    return new AccessError(`the certificate of ${address} is not valid: ${message}`);
  }
  if (!/^(ERR_SSL|ERR_TLS|EPROTO)/.test(code)) {
    return error; // the node may have gone
  }
  if (/application.protocol/i.test(code + message)) {
    return new GRPCPortError(address);
  }
  if (/alert/i.test(code + message)) {
    return new AccessError(`${address} refuses this client's certificate, or wants one: ${message}`);
  }
  if (/wrong.version|http/i.test(code + message)) {
    return new AccessError(`${address} has no TLS: leave tls out`);
  }
  return new AccessError(`TLS with ${address}: ${message}`);
}
