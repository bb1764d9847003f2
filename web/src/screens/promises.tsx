import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { get, remove } from "../api";
import { counted, duration, moment } from "../format";
import { useLive } from "../live";
import { encode, NOTHING } from "../change";
import { Bar, Card, Empty, Head, Problem, Shown, Table } from "../parts";
import { go, Link } from "../router";
import { yaml } from "./why";

interface Reservation {
  name: string;
  phase: string;
  node: string;
  start: number;
  end: number | null;
  owners: string[];
  for: string[];
  allocatable: Record<string, string>;
  allocated: Record<string, string>;
  usedPercent: number;
  summary: string;
  problem: string;
}

interface Promises {
  reservations?: Reservation[];
  sets?: { name: string; replicas: number; available: number; used: number; waiting: number; pending: number }[];
  migrations?: { name: string; pod: string; phase: string; paused: boolean; node: string; message: string }[];
  classes?: { name: string; isClass: boolean; resource: string; devices: number; used: number; free: number; nodes: number }[];
  quotas?: { namespace: string; name: string; resource: string; hard: string; used: string; percent: number; text: string }[];
}

const NEW = `apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Reservation
metadata: {name: my-reservation}
spec:
  owners: [{labelSelector: {matchLabels: {app: my-app}}}]
  ttl: 8h
  template:
    spec:
      containers:
      - {name: room, image: pause, resources: {requests: {cpu: "1", memory: 1Gi}}}
`;

export function Promises(): JSX.Element {
  const live = useLive<Promises>("/api/promises");
  return (
    <>
      <Head title="Promises" note="What is kept for whom, until when, and how much of it is used.">
        <Link class="button" to={`/what-if?change=${encode({ ...NOTHING, yaml: NEW })}`}>
          New reservation
        </Link>
      </Head>
      <Shown live={live}>
        {(found) => (
          <div class="grid">
            <Card title="Reservations" note={counted(found.reservations?.length ?? 0, "reservation")}>
              {found.reservations?.length ? (
                <Gantt rows={found.reservations} />
              ) : (
                <Empty title="Nothing is reserved.">
                  <span>
                    <code>wharf reserve deployment/NAME --replicas N</code> reserves room for the next scale-up.
                  </span>
                </Empty>
              )}
            </Card>
            <Card span={6} title="Quota" note="by namespace and resource" bare>
              {found.quotas?.length ? (
                <Table
                  label="Quota"
                  rows={found.quotas}
                  keyOf={(row) => row.namespace + row.name + row.resource}
                  columns={[
                    { title: "Quota", lead: true, cell: (row) => `${row.namespace}/${row.name}` },
                    { title: "Resource", cell: (row) => row.resource },
                    { title: "Used", cell: (row) => <Used percent={row.percent} text={row.text} /> },
                  ]}
                />
              ) : (
                <Empty title="No namespace has a quota." />
              )}
            </Card>
            <Card span={6} title="Devices" note="classes and raw resources" bare>
              {found.classes?.length ? (
                <Table
                  label="Devices"
                  rows={found.classes}
                  keyOf={(row) => row.name}
                  columns={[
                    { title: "Name", lead: true, cell: (row) => row.name },
                    { title: "Kind", short: true, cell: (row) => (row.isClass ? `class of ${row.resource}` : "raw resource") },
                    { title: "Used", cell: (row) => <Used percent={row.devices ? Math.round((100 * row.used) / row.devices) : 0} text={`${row.used} of ${row.devices} on ${counted(row.nodes, "node")}`} /> },
                  ]}
                />
              ) : (
                <Empty title="No node has devices." />
              )}
            </Card>
            <Card span={6} title="Reservation sets" bare>
              {found.sets?.length ? (
                <Table
                  label="Reservation sets"
                  rows={found.sets}
                  keyOf={(row) => row.name}
                  columns={[
                    { title: "Set", lead: true, cell: (row) => row.name },
                    { title: "Wanted", number: true, cell: (row) => row.replicas },
                    { title: "Available", number: true, cell: (row) => row.available },
                    { title: "Used", number: true, cell: (row) => row.used },
                    { title: "Pending", number: true, cell: (row) => row.pending + row.waiting },
                  ]}
                />
              ) : (
                <Empty title="There are no reservation sets." />
              )}
            </Card>
            <Card span={6} title="Migrations" note="pods that move to a reserved place" bare>
              {found.migrations?.length ? (
                <Table
                  label="Migrations"
                  rows={found.migrations}
                  keyOf={(row) => row.name}
                  columns={[
                    { title: "Pod", lead: true, cell: (row) => row.pod },
                    { title: "Phase", short: true, cell: (row) => (row.paused ? "paused" : row.phase) },
                    { title: "To", cell: (row) => row.node || "not yet known" },
                    { title: "Message", cell: (row) => row.message },
                    { title: "", short: true, cell: (row) => <Abort kind="podmigrationjob" name={row.name} text="Abort" /> },
                  ]}
                />
              ) : (
                <Empty title="No pod is being moved.">
                  <span>
                    <code>wharf migrate POD</code> moves one without losing its place.
                  </span>
                </Empty>
              )}
            </Card>
          </div>
        )}
      </Shown>
    </>
  );
}

function Used(props: { percent: number; text: string }): JSX.Element {
  return (
    <span style={{ display: "grid", gap: "3px", minWidth: "130px" }}>
      <Bar alarm used={props.percent} label={`${props.percent}%`} />
      <span class="small">{props.text}</span>
    </span>
  );
}

/** The window that a chart shows: from the first start to the last end, at most two days around now. */
export function windowOf(rows: { start: number; end: number | null }[], now: number): [number, number] {
  const start = Math.max(now - 86400, Math.min(now - 600, ...rows.map((row) => row.start)));
  const ends = rows.map((row) => row.end ?? now + 3600).filter((end) => end > now);
  const end = Math.min(now + 2 * 86400, Math.max(now + 3600, ...ends));
  return [start, end];
}

function Gantt(props: { rows: Reservation[] }): JSX.Element {
  const now = Date.now() / 1000;
  const [start, end] = windowOf(props.rows, now);
  const at = (time: number): number => Math.max(0, Math.min(100, (100 * (time - start)) / (end - start)));
  const rows = [...props.rows].sort((left, right) => left.node.localeCompare(right.node) || left.name.localeCompare(right.name));
  return (
    <div class="gantt">
      {rows.slice(0, 200).map((row) => {
        const until = row.end ?? end;
        const detail = `${row.summary}. For ${row.for.join(" or ") || "nobody in particular"}. ${row.end === null ? "It does not expire." : `Until ${moment(row.end)}, in ${duration(row.end - now)}.`}${row.problem ? ` ${row.problem}` : ""}`;
        return (
          <div key={row.name}>
            <div class="lane">
              <span class="wrap">
                <b>{row.name}</b>
                <br />
                <span class="small quiet">{row.node ? <Link to={`/nodes?node=${encodeURIComponent(row.node)}`}>{row.node}</Link> : "no node yet"}</span>
              </span>
              <div class="track" role="img" aria-label={`${row.name}: ${detail}`}>
                <div class="span" style={{ left: `${at(row.start)}%`, width: `${Math.max(1, at(until) - at(row.start))}%` }} title={detail}>
                  <i style={{ width: `${row.usedPercent}%` }} />
                  <span>{row.usedPercent}% used</span>
                </div>
                <div class="nowline" style={{ left: `${at(now)}%` }} />
              </div>
            </div>
            <div class="lane">
              <span />
              <span class="row small">
                <span class={`badge ${row.phase === "Available" ? "good" : row.phase === "Failed" ? "bad" : ""}`}>{row.phase}</span>
                <span class="wrap quiet">{detail}</span>
                {row.end !== null && (
                  <button class="link" onClick={() => void extend(row)}>
                    Extend
                  </button>
                )}
                <Abort kind="reservation" name={row.name} text="Delete" />
              </span>
            </div>
          </div>
        );
      })}
      <div class="axis">
        <span>{moment(start)}</span>
        <span>red line: now</span>
        <span>{moment(end)}</span>
      </div>
    </div>
  );
}

/** Opens the reservation in the editor with a later end; a dry run and the result come before anything is applied. */
async function extend(row: Reservation): Promise<void> {
  const found = await get<{ apiVersion: string; kind: string; spec: Record<string, unknown> }>(`/api/objects/reservation/${encodeURIComponent(row.name)}`);
  const hours = Math.ceil(((row.end ?? 0) - row.start) / 3600) + 8;
  const document = { apiVersion: found.apiVersion, kind: found.kind, metadata: { name: row.name }, spec: { ...found.spec, ttl: `${hours}h` } };
  go(`/what-if?change=${encode({ ...NOTHING, yaml: `${yaml(document)}\n` })}`);
}

function Abort(props: { kind: string; name: string; text: string }): JSX.Element {
  const [sure, setSure] = useState(false);
  const [error, setError] = useState<Error | null>(null);
  const act = async (): Promise<void> => {
    try {
      await remove(`/api/objects/${props.kind}/${encodeURIComponent(props.name)}`);
    } catch (problem) {
      setError(problem as Error);
    }
    setSure(false);
  };
  if (error) return <Problem error={error} />;
  return sure ? (
    <span class="row">
      <button onClick={() => void act()}>Really {props.text.toLowerCase()}</button>
      <button class="link" onClick={() => setSure(false)}>
        keep
      </button>
    </span>
  ) : (
    <button class="link" aria-label={`${props.text} ${props.name}`} onClick={() => setSure(true)}>
      {props.text}
    </button>
  );
}
