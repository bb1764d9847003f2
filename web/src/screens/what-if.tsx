import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { type Change, get, type Plan, post, type WhatIf as Changes } from "../api";
import { decode, encode, isEmpty, scenario } from "../change";
import { Editor } from "../editor";
import { counted, full } from "../format";
import { Card, Empty, Head, NamePicker, Problem } from "../parts";
import { Remedies } from "../remedies";
import { Link, setQuery, useLocation, why } from "../router";

interface Listed {
  namespace: string;
  name: string;
  replicas?: number;
}

interface Objects {
  objects: Listed[];
  count: number; // of all that match
}

const NONE: Objects = { objects: [], count: 0 };

interface Applied {
  ok: boolean;
  dryRun: boolean;
  results: { kind: string; namespace: string; name: string; ok: boolean; message: string }[];
}

const EXAMPLE = `apiVersion: v1
kind: Pod
metadata: {name: would-it-start, namespace: default}
spec:
  containers:
  - name: main
    image: pause
    resources:
      requests: {cpu: "2", memory: 1Gi}
`;

export function WhatIf(): JSX.Element {
  const { query } = useLocation();
  const [change, setChange] = useState<Changes>(() => decode(query.get("change") ?? ""));
  const [plan, setPlan] = useState<Plan | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const [busy, setBusy] = useState(false);
  const [copied, setCopied] = useState(false);
  const pod = query.get("pod") ?? "";
  const started = useRef(false);

  const edit = (part: Partial<Changes>): void => setChange((before) => ({ ...before, ...part }));
  const run = async (asked: Changes = change): Promise<void> => {
    setBusy(true);
    setError(null);
    setQuery({ change: encode(asked) });
    try {
      setPlan(await post<Plan>("/api/plan", asked));
    } catch (problem) {
      setPlan(null);
      setError(problem as Error);
    }
    setBusy(false);
  };
  useEffect(() => {
    // A shared link shows its result at once.
    if (!started.current && !isEmpty(change) && query.get("change")) void run();
    started.current = true;
  }, []);
  const share = async (): Promise<void> => {
    setQuery({ change: encode(change) });
    await navigator.clipboard?.writeText(location.href).catch(() => undefined);
    setCopied(true);
    setTimeout(() => setCopied(false), 2500);
  };
  return (
    <>
      <Head title="What if" note="Try a change on a copy of this cluster. Nothing is changed until you apply it." />
      <div class="grid">
        <div class="s6 stack">
          {pod && (
            <div class="notice">
              What would let <Link to={why(split(pod))}>{pod}</Link> start? The smallest changes that were found:
              <Remedies pod={split(pod)} most={6} />
            </div>
          )}
          <Card title="Change">
            <div class="stack">
              <Actions change={change} edit={edit} />
              <Editor value={change.yaml} onChange={(yaml) => edit({ yaml })} label="Manifests to apply, as YAML" />
              <div class="row">
                <button class="main-action" disabled={busy || isEmpty(change)} onClick={() => void run()}>
                  {busy ? "Trying …" : "Try it"}
                </button>
                {!change.yaml && <button onClick={() => edit({ yaml: EXAMPLE })}>Example</button>}
                <span class="spacer" />
                <button disabled={isEmpty(change)} onClick={() => void share()}>
                  {copied ? "Link copied" : "Share"}
                </button>
                <button disabled={isEmpty(change)} onClick={() => save(scenario(change))}>
                  Save as Scenario
                </button>
              </div>
              {isEmpty(change) && <p class="small quiet">Choose an action or write manifests, then try it.</p>}
            </div>
          </Card>
          {change.yaml.trim() && <Apply yaml={change.yaml} />}
        </div>
        <div class="s6 stack" aria-live="polite">
          {error && <Problem error={error} />}
          {plan ? (
            <Result plan={plan} focus={pod} />
          ) : (
            !error && (
              <Card title="Result" bare>
                <Empty title={busy ? "Simulating …" : "Nothing was tried yet."}>
                  {!busy && <span>The result lists every pod, workload and promise that would change.</span>}
                </Empty>
              </Card>
            )
          )}
        </div>
      </div>
    </>
  );
}

function split(text: string): { namespace: string; name: string } {
  const [namespace = "", name = ""] = text.split("/");
  return { namespace, name };
}

function save(text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/yaml" }));
  link.download = "scenario.yaml";
  link.click();
  URL.revokeObjectURL(link.href);
}

function Actions(props: { change: Changes; edit: (part: Partial<Changes>) => void }): JSX.Element {
  const { change, edit } = props;
  const [kind, setKind] = useState("");
  const [listed, setListed] = useState(NONE);
  const [name, setName] = useState("");
  const [many, setMany] = useState(false); // too many to list, so a name is typed
  const [number, setNumber] = useState(1);
  const source = kind === "drain" || kind === "add" ? "nodes" : kind === "scale" ? "deployments" : kind.replace("delete ", "");
  const list = (search: string): Promise<Objects> => get<Objects>(`/api/objects?kind=${source}&search=${encodeURIComponent(search)}`);
  useEffect(() => {
    setListed(NONE);
    setName("");
    if (!kind) return;
    let stale = false;
    void list("").then(
      (found) => {
        if (stale) return;
        setListed(found);
        setMany(found.count > found.objects.length);
        const first = found.objects[0];
        setName(first ? full(first) : "");
        setNumber(kind === "scale" ? (first?.replicas ?? 1) + 1 : 1);
      },
      () => undefined,
    );
    return () => {
      stale = true;
    };
  }, [kind]);
  const add = (): void => {
    const place = name.includes("/") ? split(name) : { namespace: "", name };
    if (kind === "drain") edit({ drains: [...new Set([...change.drains, name])] });
    else if (kind === "add") edit({ nodes: [...change.nodes, { like: name, count: number }] });
    else if (kind === "scale") edit({ scale: [...change.scale.filter((each) => full(each) !== name), { kind: "Deployment", ...place, replicas: number }] });
    else edit({ deletions: [...new Set([...change.deletions, `${source.replace(/s$/, "")}/${name}`])] });
  };
  const chips: [string, () => void][] = [
    ...change.drains.map((each): [string, () => void] => [`drain ${each}`, () => edit({ drains: change.drains.filter((other) => other !== each) })]),
    ...change.nodes.map((each): [string, () => void] => [`add ${counted(each.count, "node")} like ${each.like}`, () => edit({ nodes: change.nodes.filter((other) => other !== each) })]),
    ...change.scale.map((each): [string, () => void] => [`scale ${full(each)} to ${each.replicas}`, () => edit({ scale: change.scale.filter((other) => other !== each) })]),
    ...change.deletions.map((each): [string, () => void] => [`delete ${each}`, () => edit({ deletions: change.deletions.filter((other) => other !== each) })]),
  ];
  return (
    <div class="stack">
      <div class="row" style={{ alignItems: "end" }}>
        <label class="field">
          action
          <select value={kind} onChange={(event) => setKind(event.currentTarget.value)}>
            <option value="">choose …</option>
            <option value="add">add nodes like</option>
            <option value="drain">drain node</option>
            <option value="scale">scale deployment</option>
            <option value="delete pods">delete pod</option>
            <option value="delete deployments">delete deployment</option>
            <option value="delete nodes">delete node</option>
            <option value="delete reservations">delete reservation</option>
          </select>
        </label>
        {kind && (
          <NamePicker
            label="which"
            value={name}
            names={listed.objects.map(full)}
            complete={!many}
            onChoose={(chosen) => {
              setName(chosen);
              const found = listed.objects.find((each) => full(each) === chosen);
              if (kind === "scale") setNumber((found?.replicas ?? 1) + 1);
            }}
            onSearch={(text) => void list(text).then(setListed, () => undefined)}
          />
        )}
        {(kind === "add" || kind === "scale") && (
          <label class="field">
            {kind === "add" ? "how many" : "replicas"}
            <input type="number" min={kind === "add" ? 1 : 0} max={1000} value={number} style={{ width: "90px" }} onInput={(event) => setNumber(Number(event.currentTarget.value))} />
          </label>
        )}
        {kind && (
          <button onClick={add} disabled={!name}>
            Add
          </button>
        )}
      </div>
      {chips.length > 0 && (
        <div class="row">
          {chips.map(([text, drop]) => (
            <span class="badge note" key={text}>
              {text}{" "}
              <button class="link" aria-label={`Remove: ${text}`} onClick={drop}>
                ×
              </button>
            </span>
          ))}
        </div>
      )}
    </div>
  );
}

const TONES: Record<string, string> = { scheduled: "good", new: "good", pending: "bad", gone: "warn", preempted: "bad", moved: "note", changed: "note" };
const WORDS: Record<string, string> = { scheduled: "starts", new: "new", pending: "waits", gone: "gone", preempted: "preempted", moved: "moves", changed: "changes" };

/** The workload a pod's name tells, so that pods of one workload are one group. */
export function workloadOf(change: Change): string {
  if (change.kind !== "Pod") return `${change.kind} ${full(change)}`;
  const match = /^(.*)-[a-z0-9]{8,10}-[a-z0-9]{5}$/.exec(change.name) ?? /^(.*)-(?:[a-z0-9]{5}|\d+)$/.exec(change.name);
  return match ? `Pods of ${change.namespace}/${match[1]}` : `Pod ${full(change)}`;
}

function Result(props: { plan: Plan; focus: string }): JSX.Element {
  const { plan, focus } = props;
  const groups = new Map<string, Change[]>();
  for (const change of plan.changes) {
    const title = workloadOf(change);
    groups.set(title, [...(groups.get(title) ?? []), change]);
  }
  const own = plan.changes.find((change) => change.kind === "Pod" && full(change) === focus);
  const numbers = Object.entries(plan.numbers);
  return (
    <>
      {focus && (
        <div class={own?.after?.node ? "notice" : "problem"} role="status">
          {own?.after?.node ? `${focus} would start on ${String(own.after.node)}.` : `${focus} would still wait.`}
        </div>
      )}
      <Card
        title="Result"
        note={`simulated in ${plan.seconds} s`}
        action={
          <span class="row">
            {numbers.map(([what, count]) => (
              <span key={what} class={`badge ${TONES[what] ?? ""}`}>
                {count} {WORDS[what] ?? what}
              </span>
            ))}
          </span>
        }
        bare
      >
        {groups.size === 0 && plan.refused.length === 0 ? (
          <Empty title="Nothing would change." />
        ) : (
          <ul class="list">
            {plan.refused.map((each) => (
              <li key={`refused ${each.kind} ${full(each)}`}>
                <span class="title">
                  <span class="badge bad">refused</span>
                  <b>
                    {each.kind} {full(each)}
                  </b>
                </span>
                <span class="small wrap">{each.message}</span>
              </li>
            ))}
            {[...groups].map(([title, changes]) => (
              <li key={title}>
                <span class="title">
                  <b>{title}</b>
                </span>
                {changes.slice(0, 12).map((change) => (
                  <span class="small wrap" key={change.kind + change.name}>
                    <span class={`badge ${TONES[change.change] ?? ""}`}>{WORDS[change.change] ?? change.change}</span> <Difference change={change} />
                  </span>
                ))}
                {changes.length > 12 && <span class="small quiet">and {changes.length - 12} more like these</span>}
              </li>
            ))}
          </ul>
        )}
      </Card>
      {plan.whenCreatedAnew.length > 0 && (
        <Card title="When created anew" note="running pods stay; new ones would be judged differently" bare>
          <ul class="list">
            {plan.whenCreatedAnew.map((each) => (
              <li key={each.kind + full(each)}>
                <b>
                  {each.kind} {full(each)}
                </b>
                <span class="small wrap">{each.after ? `new pods would be refused: ${each.after}` : "new pods would be accepted again"}</span>
              </li>
            ))}
          </ul>
        </Card>
      )}
      {plan.notRead.length > 0 && <div class="notice">Not in the copy, so what depends on it is not simulated: {plan.notRead.slice(0, 5).join("; ")}{plan.notRead.length > 5 ? ` and ${plan.notRead.length - 5} more` : ""}</div>}
      {plan.leftOut.length > 0 && <div class="notice">Left out of the copy: {plan.leftOut.slice(0, 5).map((each) => `${each.kind} ${full(each)} (${each.message})`).join("; ")}</div>}
    </>
  );
}

export function Difference(props: { change: Change }): JSX.Element {
  const { change } = props;
  const name = change.kind === "Pod" ? <span class="mono">{change.name}</span> : null;
  const before = change.before ?? {};
  const after = change.after ?? {};
  if (change.kind === "Pod") {
    const place = (facts: Record<string, unknown>): string => (facts.node ? `on ${String(facts.node)}` : "without a node");
    if (!change.after) return <>{name} {place(before)}</>;
    if (!change.before) return <>{name} {place(after)}{after.message ? `: ${String(after.message)}` : ""}</>;
    return <>{name} {place(before)} → {place(after)}{after.node ? "" : after.message ? `: ${String(after.message)}` : ""}</>;
  }
  if (!change.before || !change.after) return <>{change.before ? "removed" : "created"}</>;
  const keys = [...new Set([...Object.keys(before), ...Object.keys(after)])].filter((key) => JSON.stringify(before[key]) !== JSON.stringify(after[key]));
  return <>{keys.map((key) => `${key}: ${text(before[key])} → ${text(after[key])}`).join(", ")}</>;
}

function text(value: unknown): string {
  if (value === null || value === undefined) return "none";
  return typeof value === "object" ? JSON.stringify(value).replaceAll('"', "").replaceAll(",", ", ") : String(value as string | number);
}

function Apply(props: { yaml: string }): JSX.Element {
  const [found, setFound] = useState<Applied | null>(null);
  const [tried, setTried] = useState("");
  const [error, setError] = useState<Error | null>(null);
  const send = async (dryRun: boolean): Promise<void> => {
    setError(null);
    try {
      setFound(await post<Applied>("/api/apply", { yaml: props.yaml, dryRun }));
      setTried(dryRun ? props.yaml : "");
    } catch (problem) {
      setFound(null);
      setError(problem as Error);
    }
  };
  const ready = found?.ok && found.dryRun && tried === props.yaml;
  return (
    <Card title="Apply" note="the manifests, with your own rights">
      <div class="stack">
        <div class="row">
          <button onClick={() => void send(true)}>Dry run</button>
          <button class="main-action" disabled={!ready} onClick={() => void send(false)}>
            Apply
          </button>
          {!ready && <span class="small quiet">A dry run must succeed first.</span>}
        </div>
        {error && <Problem error={error} />}
        {found?.results.map((each) => (
          <p key={each.kind + full(each)} class="small wrap">
            <span class={`badge ${each.ok ? "good" : "bad"}`}>{each.ok ? (found.dryRun ? "would be applied" : "applied") : "refused"}</span> {each.kind} {full(each)} {each.message}
          </p>
        ))}
      </div>
    </Card>
  );
}
