import { type ClientRequest, request } from "node:http";
import { request as requestByTLS } from "node:https";
import type { TLSSocket } from "node:tls";

import { AccessError, GRPCPortError } from "./model.js";
import type { Node, Nodes } from "./nodes.js";
import { explain } from "./tls.js";

const clusterField = "weir-cluster"; // the cluster that is meant, and that of the node that replies
const maxReply = 4 << 20; // bytes
const settings = 4; // the type of the first frame that a server of HTTP/2 sends
const wantsTLS = "Client sent an HTTP request to an HTTPS server"; // a node's reply to what is not encrypted

/** A request to a node. */
export interface Call {
  readonly node: Node;
  readonly done: Promise<Outcome>; // never fails
  abort(): void;
}

export interface Outcome {
  readonly call: Call;
  readonly cluster?: string | undefined; // that the node has named
  readonly message?: unknown; // the reply's JSON; undefined if there is none
  readonly error?: Error; // why there is none
}

/** Posts a body. If a node has closed an idle connection it is asked again, unless the body must be sent once. */
export function post(nodes: Nodes, node: Node, body: string, once: boolean): Call {
  let current: ClientRequest;
  let aborted = false;
  const secure = node.url.protocol === "https:";
  const call: Call = {
    node,
    done: new Promise((resolve) => {
      const send = (): void => {
        const headers = { "Content-Type": "application/json", [clusterField]: nodes.cluster, ...nodes.fields };
        current = (secure ? requestByTLS : request)(node.url, { method: "POST", agent: node.agent, headers });
        receive(node, current, (message, cluster) => resolve({ call, message, cluster }), failed);
        current.end(body);
      };
      const failed = (error: Error & { code?: string; rawPacket?: Buffer }): void => {
        if (!once && !aborted && current.reusedSocket && error.code === "ECONNRESET") {
          send();
          return;
        }
        const frame = error.rawPacket;
        const isHTTP2 = frame !== undefined && frame.length >= 9 && frame[0] === 0 && frame[3] === settings;
        const known = secure ? explain(node.address, error, current.socket as TLSSocket | undefined) : error;
        resolve({ call, error: isHTTP2 ? new GRPCPortError(node.address) : known });
      };
      send();
    }),
    abort: () => {
      aborted = true;
      current.destroy();
    },
  };
  return call;
}

function receive(node: Node, sent: ClientRequest, done: (message: unknown, cluster: string | undefined) => void, failed: (error: Error) => void): void {
  sent.on("error", failed);
  sent.on("response", (response) => {
    const parts: Buffer[] = [];
    let size = 0;
    response.on("error", failed);
    response.on("data", (part: Buffer) => {
      size += part.length;
      if (size > maxReply) {
        sent.destroy(new Error(`a reply has more than ${maxReply} bytes`));
      }
      parts.push(part);
    });
    response.on("end", () => {
      try {
        const cluster = response.headers[clusterField];
        const message = parse(node, response.statusCode, Buffer.concat(parts).toString());
        done(message, typeof cluster === "string" ? cluster : undefined);
      } catch (error) {
        failed(error as Error);
      }
    });
  });
}

/** Reads a reply. It fails with AccessError if that refuses this client. */
function parse(node: Node, status: number | undefined, reply: string): unknown {
  if (status === 400 && reply.startsWith(wantsTLS)) {
    throw new AccessError(`${node.address} has TLS: give tls`);
  }
  const message: unknown = JSON.parse(reply);
  if (status === 401 || status === 403) {
    const { detail, message: text } = (message ?? {}) as { detail?: unknown; message?: unknown };
    throw new AccessError(`${node.address}: ${String(detail ?? text)}`);
  }
  return message;
}
