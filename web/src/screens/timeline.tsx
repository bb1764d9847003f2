import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { type EventRow, get, type NodeColumns, post } from "../api";
import { Chart } from "../chart";
import { clock, counted, full } from "../format";
import { useLive } from "../live";
import { HeatMap } from "../map";
import { Card, Empty, Head, Problem, Shown, Switch } from "../parts";
import { Link, why } from "../router";

interface Recorded {
  time: number[];
  nodes: number[];
  waiting: number[];
  running: number[];
  cpu: number[];
  memory: number[];
  events: EventRow[];
}

/** How full each node was at one moment, in percent of CPU; without names, nothing is known of it. */
interface NodesAt {
  names: string[];
  fill: number[];
}

interface Played {
  frames: { time: number; nodes: number; waiting: number; running: number; cpu: number; memory: number; fill: Record<string, number> }[];
  expectations: { step?: string; expect?: string; ok: boolean; problems?: string[] }[];
  events: { time: string; reason: string; message: string; kind: string; namespace: string; name: string }[];
  refused: { kind: string; namespace: string; name: string; message: string }[];
}

export interface Film {
  time: number[];
  waiting: number[];
  running: number[];
  cpu: number[];
  memory: number[];
  nodesAt?: NodesAt[]; // of each frame; those of the recorded past are asked for one by one
  events: EventRow[];
}

export function film(found: Played): Film {
  return {
    time: found.frames.map((frame) => frame.time),
    waiting: found.frames.map((frame) => frame.waiting),
    running: found.frames.map((frame) => frame.running),
    cpu: found.frames.map((frame) => frame.cpu),
    memory: found.frames.map((frame) => frame.memory),
    nodesAt: found.frames.map(({ fill }) => {
      const names = Object.keys(fill).sort();
      return { names, fill: names.map((name) => fill[name] ?? 0) };
    }),
    events: found.events.map((event) => ({ ...event, time: Date.parse(event.time) / 1000, type: "Normal", count: 1, from: "" })),
  };
}

const SAMPLED = 5000; // milliseconds between two samples of the server
const NOTHING: NodesAt = { names: [], fill: [] };

/** The nodes at a moment of the recorded past; those of the moment before are shown until the answer comes. */
function useNodesAt(time: number | null): NodesAt {
  const [found, set] = useState(NOTHING);
  useEffect(() => {
    if (time === null) return;
    let stale = false;
    const timer = setTimeout(() => void get<NodesAt>(`/api/timeline/nodes?time=${time}`).then((nodes) => !stale && set(nodes), () => undefined), 50);
    return () => {
      stale = true;
      clearTimeout(timer);
    };
  }, [time]);
  return found;
}

export function Timeline(): JSX.Element {
  const [source, setSource] = useState<"recorded" | "scenario">("recorded");
  const live = useLive<Recorded>("/api/timeline", [], SAMPLED);
  return (
    <>
      <Head title="Timeline" note="Queue and utilisation over time. Drag the slider, or click a chart.">
        <Switch
          label="Source"
          value={source}
          options={[
            ["recorded", "Recorded"],
            ["scenario", "Play a scenario"],
          ]}
          onChange={setSource}
        />
      </Head>
      {source === "recorded" ? <Shown live={live}>{(found) => <View film={found} follow />}</Shown> : <Player />}
    </>
  );
}

const SAMPLE = `apiVersion: wharfinger.dev/v1alpha1
kind: Scenario
metadata: {name: a-busy-minute}
steps:
- apply:
  - {apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: 4, memory: 8Gi, pods: 110}}}
  - {apiVersion: v1, kind: Node, metadata: {name: n2}, status: {allocatable: {cpu: 4, memory: 8Gi, pods: 110}}}
- at: 10s
  apply:
  - apiVersion: apps/v1
    kind: Deployment
    metadata: {name: web}
    spec:
      replicas: 5
      selector: {matchLabels: {app: web}}
      template:
        metadata: {labels: {app: web}}
        spec:
          containers: [{name: c, image: pause, resources: {requests: {cpu: 2, memory: 1Gi}}}]
- at: 30s
  apply:
  - {apiVersion: v1, kind: Node, metadata: {name: n3}, status: {allocatable: {cpu: 4, memory: 8Gi, pods: 110}}}
`;

function Player(): JSX.Element {
  const [text, setText] = useState(SAMPLE);
  const [alone, setAlone] = useState(true);
  const [found, setFound] = useState<Played | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const [busy, setBusy] = useState(false);
  const play = async (): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      setFound(await post<Played>("/api/play", { yaml: text, alone, seconds: 10 }));
    } catch (problem) {
      setFound(null);
      setError(problem as Error);
    }
    setBusy(false);
  };
  const made = useMemo(() => (found ? film(found) : null), [found]);
  return (
    <div class="stack">
      <Card title="Scenario">
        <div class="stack">
          <textarea aria-label="Scenario as YAML" class="mono" spellcheck={false} style={{ width: "100%", minHeight: "220px", whiteSpace: "pre" }} value={text} onInput={(event) => setText(event.currentTarget.value)} />
          <div class="row">
            <button class="main-action" disabled={busy} onClick={() => void play()}>
              {busy ? "Playing …" : "Play"}
            </button>
            <label class="row small">
              <input type="checkbox" checked={!alone} onChange={(event) => setAlone(!event.currentTarget.checked)} /> on a copy of this cluster
            </label>
          </div>
          {error && <Problem error={error} />}
          {found?.expectations.map((each, index) => (
            <p key={index} class="small wrap">
              <span class={`badge ${each.ok ? "good" : "bad"}`}>{each.ok ? "holds" : "fails"}</span> {each.step}: {each.expect} {each.problems?.join("; ")}
            </p>
          ))}
          {found?.refused.map((each) => (
            <p key={each.kind + full(each)} class="small wrap">
              <span class="badge bad">refused</span> {each.kind} {full(each)}: {each.message}
            </p>
          ))}
        </div>
      </Card>
      {made && <View film={made} />}
    </div>
  );
}

function View(props: { film: Film; follow?: boolean }): JSX.Element {
  const { film: shown } = props;
  const last = shown.time.length - 1;
  const [chosen, setChosen] = useState<number | null>(props.follow ? null : 0);
  const [playing, setPlaying] = useState(false);
  const at = Math.min(last, chosen ?? last);
  useEffect(() => {
    if (!playing) return;
    const timer = setInterval(() => setChosen((before) => ((before ?? last) >= last ? (setPlaying(false), last) : (before ?? last) + 1)), 120);
    return () => clearInterval(timer);
  }, [playing, last]);
  const asked = useNodesAt(shown.nodesAt ? null : (shown.time[at] ?? null));
  const nodes = shown.nodesAt ? (shown.nodesAt[at] ?? NOTHING) : asked;
  const columns = useMemo((): NodeColumns => {
    const all = <T,>(value: T): T[] => nodes.names.map(() => value);
    return { names: nodes.names, ready: all(true), cordoned: all(false), pods: all(0), cpu: nodes.fill, memory: all(0), reserved: all(0), devices: all(-1), unit: all(""), labels: {}, totals: {} };
  }, [nodes]);
  if (last < 0) return <Empty title="Nothing is recorded yet." />;
  const now = shown.time[at]!;
  const first = shown.time[0]!;
  const near = shown.events.filter((event) => event.time <= now + 1).slice(-25).reverse();
  return (
    <div class="grid">
      <Card title={clock(now)} note={`${counted(shown.waiting[at]!, "pod")} waiting, ${shown.running[at]!.toLocaleString("en")} on nodes, ${shown.cpu[at]}% of CPU requested`} action={props.follow && chosen !== null ? <button onClick={() => setChosen(null)}>Follow</button> : undefined}>
        <div class="row slider" style={{ flexWrap: "nowrap" }}>
          <button
            onClick={() => {
              if (at >= last) setChosen(0);
              setPlaying(!playing);
            }}
          >
            {playing ? "Pause" : "Play"}
          </button>
          <span class="small quiet">{clock(first)}</span>
          <input
            type="range"
            style={{ flex: 1 }}
            min={0}
            max={last}
            value={at}
            aria-label="Time"
            aria-valuetext={clock(now)}
            onInput={(event) => {
              setPlaying(false);
              setChosen(Number(event.currentTarget.value));
            }}
          />
          <span class="small quiet">{clock(shown.time[last]!)}</span>
        </div>
      </Card>
      <div class="s7 stack">
        <Card title="Pods">
          <Chart
            label="Pods waiting and on nodes over time"
            time={shown.time}
            at={at}
            onPick={setChosen}
            lines={[
              { label: "waiting", values: shown.waiting, colour: "#c38a1f" },
              { label: "on nodes", values: shown.running, colour: "#2a8fb0" },
            ]}
          />
        </Card>
        <Card title="Utilisation">
          <Chart
            label="CPU and memory requested over time, in percent"
            time={shown.time}
            at={at}
            onPick={setChosen}
            most={100}
            lines={[
              { label: "CPU", values: shown.cpu, colour: "#2a8fb0", suffix: "%" },
              { label: "memory", values: shown.memory, colour: "#8b6fc0", suffix: "%" },
            ]}
          />
        </Card>
        <Card title="Nodes" note="by CPU requested, at this moment" bare>
          {nodes.names.length ? <HeatMap nodes={columns} measure="cpu" group="" filter="" height={220} dense onOpen={() => undefined} /> : <Empty title="Before the dashboard started, only totals are known." />}
        </Card>
      </div>
      <Card span={5} title="Events until then" note="latest first" bare>
        {near.length ? (
          <ul class="list tall" tabIndex={0} aria-label="Events">
            {near.map((event, index) => (
              <li key={index}>
                <span class="title">
                  <button class="link small" onClick={() => setChosen(nearest(shown.time, event.time))}>
                    {clock(event.time)}
                  </button>
                  <span class={`badge ${event.type === "Warning" ? "warn" : ""}`}>{event.reason}</span>
                  <b>{event.kind === "Pod" && props.follow ? <Link to={why(event)}>{full(event)}</Link> : `${event.kind} ${full(event)}`}</b>
                </span>
                <span class="small quiet wrap">{event.message}</span>
              </li>
            ))}
          </ul>
        ) : (
          <Empty title="No event is known of that time." />
        )}
      </Card>
    </div>
  );
}

/** The position of the sample that is nearest in time. */
export function nearest(times: number[], wanted: number): number {
  let best = 0;
  for (let index = 1; index < times.length; index += 1) {
    if (Math.abs(times[index]! - wanted) < Math.abs(times[best]! - wanted)) best = index;
  }
  return best;
}
