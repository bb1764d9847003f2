import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { type Explanation, get, type OnNode, type Place } from "../api";
import { ago, counted, full } from "../format";
import { useLive } from "../live";
import { Card, Empty, Head, NamePicker, Shown } from "../parts";
import { Remedies } from "../remedies";
import { go, Link, setQuery, useLocation, why } from "../router";

const COLOURS = ["#2a8fb0", "#c38a1f", "#4f9d69", "#8b6fc0", "#c25e7a", "#5b8def", "#9c7a4a", "#3aa6a0", "#b0624f", "#7a8794"];

export function Why(props: { namespace: string; name: string }): JSX.Element {
  const { query } = useLocation();
  const compare = query.get("compare") ?? "";
  const path = `/api/explain/${encodeURIComponent(props.namespace)}/${encodeURIComponent(props.name)}`;
  const live = useLive<Explanation>(compare ? `${path}?compare=${encodeURIComponent(compare)}` : path);
  const place = { namespace: props.namespace, name: props.name };
  return (
    <>
      <Head title={<span class="wrap">Why: {full(place)}</span>}>
        <Link class="button" to={`/what-if?pod=${encodeURIComponent(full(place))}`}>
          What if?
        </Link>
        <Link class="button" to="/why">
          Another pod
        </Link>
      </Head>
      <Shown live={live}>{(found) => <Answer found={found} compare={compare} />}</Shown>
    </>
  );
}

function Answer(props: { found: Explanation; compare: string }): JSX.Element {
  const { found } = props;
  const names = pluginNames(found);
  return (
    <div class="grid">
      <Card span={12} title="Answer" bare>
        <div class="body stack">
          <p style={{ fontSize: "17px" }}>
            <Sentence found={found} />
          </p>
          {found.message && <p class="quiet wrap">{found.message}</p>}
          {!found.pod.node && !found.choice && (
            <div>
              <b>What would help</b>
              <Remedies pod={found.pod} most={6} />
            </div>
          )}
          {found.notes.map((note) => (
            <p key={note} class="wrap">
              {note}
            </p>
          ))}
        </div>
      </Card>
      <div class="s7 stack">
        {found.refused.length > 0 && (
          <Card
            title="Refused by"
            note={`${counted(found.refused.reduce((sum, each) => sum + each.count, 0), "node")} of ${found.nodeCount.toLocaleString("en")}`}
            bare
          >
            <ul class="list">
              {found.refused.map((group) => (
                <Refusal key={group.plugin + group.reason} group={group} />
              ))}
            </ul>
          </Card>
        )}
        {found.preFilter && (
          <Card title="Refused as a whole">
            <p>
              <span class="badge bad">{found.preFilter.plugin}</span> {found.preFilter.message}
            </p>
          </Card>
        )}
        {found.scores.length > 0 && (
          <Card
            title="Scores"
            note={found.feasible > found.scores.length ? `best ${found.scores.length} of ${counted(found.feasible, "node")}` : counted(found.feasible, "node")}
          >
            <Scores found={found} names={names} />
          </Card>
        )}
        <Compare found={found} compare={props.compare} />
      </div>
      <div class="s5 stack">
        {found.preemption && (
          <Card title="Preemption">
            <Preemption found={found.preemption} />
          </Card>
        )}
        <Card title="What it asks for">
          <Asked spec={found.spec} />
        </Card>
        <Card title="Events" bare>
          {found.events.length ? (
            <ul class="list">
              {found.events.map((event) => (
                <li key={event.reason + event.time + event.message}>
                  <span class="title">
                    <span class={`badge ${event.type === "Warning" ? "warn" : ""}`}>{event.reason}</span>
                    <span class="quiet small">
                      {ago(event.time)}
                      {event.count > 1 ? `, ${event.count} times` : ""}
                    </span>
                  </span>
                  <span class="small wrap">{event.message}</span>
                </li>
              ))}
            </ul>
          ) : (
            <Empty title="No events are left of it." />
          )}
        </Card>
      </div>
    </div>
  );
}

function Sentence(props: { found: Explanation }): JSX.Element {
  const { found } = props;
  if (found.pod.node) {
    return found.choice === found.pod.node ? (
      <>
        It is on <b>{found.pod.node}</b>, which is also the best node now.
      </>
    ) : (
      <>
        It is on <b>{found.pod.node}</b>. {found.choice ? <>Scheduled now, it would go to <b>{found.choice}</b>.</> : "Scheduled now, no node would take it."}
      </>
    );
  }
  if (found.choice) {
    return (
      <>
        It fits on <b>{found.choice}</b>, the best of {counted(found.feasible, "node")}.
      </>
    );
  }
  const final = found.refused.length > 0 && found.refused.every((group) => group.final);
  if (found.preemption?.node) {
    return (
      <>
        No node has room, but preempting {counted(found.preemption.candidates[0]?.victims.length ?? 0, "pod")} on <b>{found.preemption.node}</b> would make some.
      </>
    );
  }
  return (
    <>
      No node takes it. {final ? "No pod that leaves would change that: the pod or a node has to change." : "It starts when there is room."}
    </>
  );
}

function Refusal(props: { group: Explanation["refused"][number] }): JSX.Element {
  const { group } = props;
  const [open, setOpen] = useState(group.count <= 8);
  return (
    <li>
      <span class="title">
        <b>{group.reason}</b>
        <span class="badge">{group.plugin}</span>
        <span class={`badge ${group.final ? "bad" : "warn"}`}>{group.final ? "until something changes" : "until there is room"}</span>
      </span>
      <span class="small wrap">
        {counted(group.count, "node")}
        {open ? ": " : " "}
        {open ? (
          group.nodes.map((node, index) => (
            <>
              {index > 0 && ", "}
              <Link to={`/nodes?node=${encodeURIComponent(node)}`}>{node}</Link>
            </>
          ))
        ) : (
          <button class="link" onClick={() => setOpen(true)}>
            show them
          </button>
        )}
        {open && group.count > group.nodes.length ? ` and ${(group.count - group.nodes.length).toLocaleString("en")} more` : ""}
      </span>
      {group.details?.map((detail) => (
        <span class="small wrap" key={detail.text}>
          {detail.nodes.length > 3 ? counted(detail.nodes.length, "node") : detail.nodes.join(", ")}: {detail.text}
        </span>
      ))}
    </li>
  );
}

function pluginNames(found: Explanation): string[] {
  const names = new Set<string>();
  for (const row of found.scores) for (const [name, value] of Object.entries(row.scores)) if (value) names.add(name);
  return [...names].sort();
}

function Scores(props: { found: Explanation; names: string[] }): JSX.Element {
  const { found, names } = props;
  const most = Math.max(1, ...found.scores.map((row) => row.total));
  // One very large part (a reservation) would hide all others: bars then show the root.
  const spread = most > 20 * Math.max(1, Math.min(...found.scores.map((row) => row.total)));
  const length = (value: number): number => (spread ? Math.sqrt(value / most) : value / most) * 100;
  return (
    <div class="stack">
      <div class="legend">
        {names.map((name, index) => (
          <span key={name}>
            <i class="key" style={{ background: COLOURS[index % COLOURS.length] }} />
            {name}
          </span>
        ))}
      </div>
      <div class="scores">
        {found.scores.map((row) => {
          const total = Math.max(1, row.total);
          const title = names.filter((name) => row.scores[name]).map((name) => `${name} ${row.scores[name]}`).join(", ");
          return (
            <div class="score" key={row.node}>
              <span class={`wrap ${row.node === found.choice ? "chosen" : ""}`}>
                <Link to={`/nodes?node=${encodeURIComponent(row.node)}`}>{row.node}</Link>
                {row.node === found.choice ? " ✓" : ""}
              </span>
              <div class="bar tall" role="img" aria-label={`${row.node}: ${title}`} title={title}>
                {names.map((name, index) => (
                  <i
                    key={name}
                    style={{
                      width: `${((row.scores[name] ?? 0) / total) * length(row.total)}%`,
                      background: COLOURS[index % COLOURS.length],
                    }}
                  />
                ))}
              </div>
              <span class="mono" style={{ textAlign: "right" }}>
                {row.total.toLocaleString("en")}
              </span>
            </div>
          );
        })}
      </div>
      {spread && <p class="small quiet">The totals differ widely, so the bars show their square roots.</p>}
    </div>
  );
}

function Preemption(props: { found: NonNullable<Explanation["preemption"]> }): JSX.Element {
  const { found } = props;
  if (!found.candidates.length) return <p class="quiet wrap">{found.message || "No pod may be preempted for it."}</p>;
  return (
    <div class="stack">
      {found.candidates.map((candidate) => (
        <div key={candidate.node}>
          <b>{candidate.node}</b> {candidate.node === found.node && <span class="badge note">first choice</span>}{" "}
          {candidate.violations > 0 && <span class="badge bad">{counted(candidate.violations, "budget")} violated</span>}
          <div class="small wrap">
            {candidate.victims.map((victim, index) => (
              <>
                {index > 0 && ", "}
                <Link to={why(victim)}>{full(victim)}</Link> (priority {victim.priority})
              </>
            ))}
          </div>
        </div>
      ))}
    </div>
  );
}

function Compare(props: { found: Explanation; compare: string }): JSX.Element {
  const [first = "", second = ""] = props.compare.split(",");
  const names = [...new Set([...props.found.scores.map((row) => row.node), ...props.found.refused.flatMap((group) => group.nodes)])].sort();
  const choose = (left: string, right: string): void => setQuery({ compare: [left, right].filter(Boolean).join(",") });
  const shown = [first, second].filter(Boolean).map((name) => ({ name, on: props.found.compared?.[name] }));
  const plugins = [...new Set(shown.flatMap(({ on }) => Object.keys(on?.scores ?? {})))].sort();
  return (
    <Card span={12} title="Compare two nodes">
      <div class="stack">
        <div class="row">
          {[first, second].map((value, index) => (
            <NamePicker
              key={index}
              label={index ? "with" : "node"}
              value={value}
              names={names}
              complete={names.length >= props.found.nodeCount}
              empty="choose …"
              onChoose={(name) => (index ? choose(first || names[0] || "", name) : choose(name, second))}
            />
          ))}
        </div>
        {shown.length > 0 && (
          <div class="scroll" role="region" aria-label="Comparison" tabIndex={0}>
            <table class="cards">
              <thead>
                <tr>
                  <th scope="col">Plugin</th>
                  {shown.map(({ name }) => (
                    <th key={name} scope="col" class="number">
                      {name}
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {shown.some(({ on }) => on?.reason) && (
                  <tr>
                    <td class="lead">refused</td>
                    {shown.map(({ name, on }) => (
                      <td key={name} data-label={name} style="text-align: right">
                        {refusalText(on)}
                      </td>
                    ))}
                  </tr>
                )}
                {plugins.map((plugin) => (
                  <tr key={plugin}>
                    <td class="lead plugin">{plugin}</td>
                    {shown.map(({ name, on }) => (
                      <td key={name} data-label={name} class="number mono">
                        {on?.scores?.[plugin]?.toLocaleString("en") ?? "–"}
                      </td>
                    ))}
                  </tr>
                ))}
                {plugins.length > 0 && (
                  <tr>
                    <td class="lead">
                      <b>total</b>
                    </td>
                    {shown.map(({ name, on }) => (
                      <td key={name} data-label={name} class="number mono">
                        <b>{on?.total?.toLocaleString("en") ?? "–"}</b>
                      </td>
                    ))}
                  </tr>
                )}
              </tbody>
            </table>
          </div>
        )}
      </div>
    </Card>
  );
}

function refusalText(on: OnNode | undefined): string {
  if (!on || on.unknown) return "no such node";
  return on.reason ? `${on.plugin}: ${on.reason}` : "–";
}

function Asked(props: { spec: Record<string, unknown> }): JSX.Element {
  return (
    <pre class="mono small" style={{ margin: 0, whiteSpace: "pre-wrap", overflowWrap: "anywhere" }} tabIndex={0}>
      {yaml(props.spec)}
    </pre>
  );
}

/** A value as block YAML, for reading. */
export function yaml(value: unknown, indent = ""): string {
  if (Array.isArray(value)) {
    return value.map((each) => `${indent}- ${yaml(each, `${indent}  `).trimStart()}`).join("\n");
  }
  if (value !== null && typeof value === "object") {
    return Object.entries(value)
      .map(([key, each]) => {
        if (each !== null && typeof each === "object") {
          const empty = Array.isArray(each) ? !each.length : !Object.keys(each).length;
          return empty ? `${indent}${key}: ${Array.isArray(each) ? "[]" : "{}"}` : `${indent}${key}:\n${yaml(each, `${indent}  `)}`;
        }
        return `${indent}${key}: ${each as string}`;
      })
      .join("\n");
  }
  return `${indent}${String(value)}`;
}

export function WhyChooser(): JSX.Element {
  const [search, setSearch] = useState("");
  const [pods, setPods] = useState<(Place & { node: string })[]>([]);
  useEffect(() => {
    let stale = false;
    void get<{ pods: (Place & { node: string })[] }>(`/api/pods?search=${encodeURIComponent(search)}`).then(
      (found) => !stale && setPods(found.pods),
      () => undefined,
    );
    return () => {
      stale = true;
    };
  }, [search]);
  return (
    <>
      <Head title="Why" note="Why is a pod where it is, or why does it wait? Choose one; waiting pods come first." />
      <Card title="Pods" bare action={<input type="search" placeholder="Search" aria-label="Search pods" value={search} onInput={(event) => setSearch(event.currentTarget.value)} onKeyDown={(event) => { if (event.key === "Enter" && pods[0]) go(why(pods[0])); }} />}>
        {pods.length ? (
          <ul class="list">
            {pods.slice(0, 60).map((pod) => (
              <li key={full(pod)}>
                <span class="row">
                  <Link to={why(pod)}>{full(pod)}</Link>
                  <span class="quiet small">{pod.node ? `on ${pod.node}` : "waits"}</span>
                </span>
              </li>
            ))}
            {pods.length > 60 && <li class="quiet">Search to find the others.</li>}
          </ul>
        ) : (
          <Empty title="No pod matches." />
        )}
      </Card>
    </>
  );
}
