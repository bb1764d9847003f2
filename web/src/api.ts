// Requests to the endpoints. An answer that did not change is not transferred again.

export interface Place {
  namespace: string;
  name: string;
}

export interface Reason {
  plugin: string;
  reason: string;
  nodes: number;
  final: boolean;
}

export type Verdict = "never" | "waiting" | "now" | "held" | "elsewhere" | "unjudged";

export interface WaitingPod extends Place {
  workload: string;
  priority: number;
  since: number | null;
  position: number;
  message: string;
  cpu: number;
  memory: number;
  verdict: Verdict;
  because: string;
  reasons: Reason[];
}

/** What would become of a waiting pod if nothing changed but what has a known end. */
export interface Start extends Place {
  verdict: "now" | "waiting" | "never";
  node?: string;
  startsAt?: string;
  waitsFor?: string[];
}

export interface Help {
  text: string;
  yaml?: string;
  change?: Partial<WhatIf>;
}

export interface Cause {
  verdict: Verdict;
  because: string;
  count: number;
  since: number | null;
  cpu: number;
  memory: number;
  pods: Place[];
  workloads: string[];
}

export interface EventRow extends Place {
  time: number;
  type: string;
  reason: string;
  message: string;
  count: number;
  from: string;
  kind: string;
}

export interface Promise_ {
  kind: string;
  name: string;
  screen: string;
  used: number | null;
  text: string;
  problem: string;
}

export interface Totals {
  [resource: string]: { allocatable: number; requested: number };
}

export interface Counts {
  nodes: number;
  nodesReady: number;
  pods: number;
  running: number;
  waiting: number;
  namespaces: number;
}

export interface Overview {
  counts: Counts;
  totals: Totals;
  causes: Cause[];
  promises: Promise_[];
  events: EventRow[];
}

export interface NodeColumns {
  names: string[];
  ready: boolean[];
  cordoned: boolean[];
  pods: number[];
  cpu: number[];
  memory: number[];
  reserved: number[];
  devices: number[];
  unit: string[];
  labels: Record<string, { values: string[]; of: number[] }>;
  totals: Totals;
}

export interface Device {
  name: string;
  resource: string;
  count: number;
  used: number;
  properties: Record<string, string>;
}

export interface NodeDetail {
  name: string;
  ready: boolean;
  cordoned: boolean;
  since: number | null;
  labels: Record<string, string>;
  taints: { key: string; value?: string; effect: string }[];
  conditions: { type: string; status: string; message: string }[];
  resources: { name: string; allocatable: number; requested: number }[];
  pods: (Place & { phase: string; workload: string; cpu: number; memory: number; since: number | null })[];
  reservations: { name: string; phase: string; allocatable: Record<string, number>; allocated: Record<string, number> }[];
  devices: Device[];
  unit: string[];
}

export interface Scored {
  node: string;
  total: number;
  scores: Record<string, number>;
}

export interface OnNode {
  scores?: Record<string, number>;
  total?: number;
  plugin?: string;
  reason?: string;
  final?: boolean;
  unknown?: boolean;
}

export interface Explanation {
  pod: Place & { node: string | null; phase: string };
  choice: string | null;
  message: string;
  notes: string[];
  nodeCount: number;
  refused: {
    plugin: string;
    reason: string;
    final: boolean;
    count: number;
    nodes: string[];
    details?: { text: string; nodes: string[] }[];
  }[];
  scores: Scored[];
  feasible: number;
  preemption: null | {
    node: string | null;
    message: string;
    candidates: { node: string; violations: number; victims: (Place & { priority: number })[] }[];
  };
  preFilter?: { plugin: string; message: string };
  compared?: Record<string, OnNode>;
  spec: Record<string, unknown>;
  events: EventRow[];
  help?: Help[];
}

export interface WhatIf {
  yaml: string;
  scale: { kind: string; namespace: string; name: string; replicas: number }[];
  nodes: { like: string; count: number }[];
  deletions: string[];
  drains: string[];
}

export interface Change extends Place {
  kind: string;
  change: string;
  before: Record<string, unknown> | null;
  after: Record<string, unknown> | null;
}

export interface Plan {
  changes: Change[];
  refused: (Place & { kind: string; message: string; user?: string })[];
  whenCreatedAnew: (Place & { kind: string; before: string | null; after: string | null })[];
  failed: { step?: string; problems?: string[] }[];
  leftOut: (Place & { kind: string; message: string })[];
  numbers: Record<string, number>;
  notRead: string[];
  seconds: number;
}

export interface Session {
  user: string;
  server: string;
  version: string;
  explains: boolean;
  ready: boolean;
  notRead: string[];
  screens: string[];
}

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

const KNOWN = 50; // answers that are remembered
const known = new Map<string, { tag: string; value: unknown }>();
const asked = new Map<string, Promise<unknown>>(); // without an answer yet

/** Whoever asks while the same question is under way gets the same answer. */
export function get<T>(path: string): Promise<T> {
  const underway = asked.get(path) ?? ask<T>(path).finally(() => asked.delete(path));
  asked.set(path, underway);
  return underway as Promise<T>;
}

async function ask<T>(path: string): Promise<T> {
  const before = known.get(path);
  const headers: Record<string, string> = before ? { "if-none-match": before.tag } : {};
  const response = await fetch(path, { headers, credentials: "same-origin" });
  if (response.status === 304 && before) return before.value as T;
  const value = await read<T>(response);
  const tag = response.headers.get("etag");
  known.delete(path);
  if (tag) known.set(path, { tag, value });
  for (const oldest of known.keys()) {
    if (known.size <= KNOWN) break;
    known.delete(oldest);
  }
  return value;
}

export async function post<T>(path: string, body: unknown): Promise<T> {
  return send<T>("POST", path, body);
}

export async function remove(path: string): Promise<void> {
  await send("DELETE", path, undefined);
}

async function send<T>(method: string, path: string, body: unknown): Promise<T> {
  const response = await fetch(path, {
    method,
    credentials: "same-origin",
    headers: { "content-type": "application/json", "x-wharf-request": "1" },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return read<T>(response);
}

async function read<T>(response: Response): Promise<T> {
  const text = await response.text();
  if (!response.ok) {
    let message = text;
    try {
      message = (JSON.parse(text) as { message?: string }).message ?? text;
    } catch {
      // not JSON: the text is the message
    }
    throw new ApiError(response.status, message || `the server answered ${response.status}`);
  }
  return (text ? JSON.parse(text) : undefined) as T;
}
