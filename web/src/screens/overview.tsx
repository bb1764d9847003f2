import type { JSX } from "preact";
import type { Cause, NodeColumns, Overview as Answer, Totals } from "../api";
import { ago, amount, bytes, counted, cpu, duration, full } from "../format";
import { useLive } from "../live";
import { HeatMap, Legend } from "../map";
import { Bar, Card, Empty, Head, Shown, VerdictBadge } from "../parts";
import { Remedies } from "../remedies";
import { go, Link, why } from "../router";
import { useTheme } from "../theme";

export function Overview(): JSX.Element {
  const live = useLive<Answer>("/api/overview");
  const nodes = useLive<NodeColumns>("/api/nodes");
  const theme = useTheme();
  return (
    <>
      <Head title="Overview" />
      <Shown live={live}>
        {(found) => (
          <div class="grid">
            <Stat title="Waiting pods" value={found.counts.waiting} note={waitingNote(found)} to="/waiting" />
            <Stat
              title="Running pods"
              value={found.counts.running}
              note={`of ${counted(found.counts.pods, "pod")} in ${counted(found.counts.namespaces, "namespace")}`}
              to="/nodes"
            />
            <Share title="CPU requested" resource="cpu" totals={found.totals} />
            <Share title="Memory requested" resource="memory" totals={found.totals} />
            <div class="s7 stack">
              <Card
                title="Why pods wait"
                note={found.causes.length ? counted(found.counts.waiting, "pod") : undefined}
                action={<Link to="/waiting">all waiting pods</Link>}
                bare
              >
                <Causes causes={found.causes} />
              </Card>
              <Card title="What is promised" action={<Link to="/promises">all promises</Link>} bare>
                {found.promises.length ? (
                  <ul class="list">
                    {found.promises.slice(0, 12).map((promise) => (
                      <li key={promise.kind + promise.name} class="promise">
                        <span class="wrap">
                          <span class="badge">{promise.kind}</span> <Link to={`/${promise.screen}`}>{promise.name}</Link>
                        </span>
                        <Bar used={promise.used} alarm={promise.kind !== "Reservation"} label={promise.used === null ? promise.text : `${promise.used}% used`} />
                        <span class="text small quiet wrap">{promise.problem || promise.text}</span>
                      </li>
                    ))}
                    {found.promises.length > 12 && (
                      <li>
                        <Link to="/promises">{counted(found.promises.length - 12, "more promise")}</Link>
                      </li>
                    )}
                  </ul>
                ) : (
                  <Empty title="Nothing is promised.">
                    <span>
                      Reservations, resource policies with limits and quotas appear here. <code>wharf reserve</code> makes a
                      reservation.
                    </span>
                  </Empty>
                )}
              </Card>
            </div>
            <div class="s5 stack">
              <Card
                title="Nodes"
                note={`${found.counts.nodesReady.toLocaleString("en")} of ${found.counts.nodes.toLocaleString("en")} ready, by CPU requested`}
                action={<Link to="/nodes">explore</Link>}
                bare
              >
                <Shown live={nodes}>
                  {(columns) =>
                    columns.names.length ? (
                      <>
                        <HeatMap
                          nodes={columns}
                          measure="cpu"
                          group={columns.labels["topology.kubernetes.io/zone"] ? "topology.kubernetes.io/zone" : ""}
                          filter=""
                          height={columns.names.length > 500 ? 330 : 230}
                        dense
                          onOpen={(name) => go(`/nodes?node=${encodeURIComponent(name)}`)}
                        />
                        <div class="body">
                          <Legend measure="cpu" nodes={columns} theme={theme} />
                        </div>
                      </>
                    ) : (
                      <Empty title="There are no nodes, or you may not list them." />
                    )
                  }
                </Shown>
              </Card>
              <Card title="Refused and preempted" note="latest first" action={<Link to="/timeline">time line</Link>} bare>
                {found.events.length ? (
                  <ul class="list">
                    {found.events.map((event) => (
                      <li key={event.kind + full(event) + event.reason}>
                        <span class="title">
                          <span class={`badge ${event.type === "Warning" ? "warn" : ""}`}>{event.reason}</span>
                          <b>
                            {event.kind === "Pod" ? <Link to={why(event)}>{full(event)}</Link> : `${event.kind} ${full(event)}`}
                          </b>
                          <span class="quiet small">
                            {ago(event.time)}
                            {event.count > 1 ? `, ${event.count} times` : ""}
                          </span>
                        </span>
                        <span class="small quiet wrap">{event.message}</span>
                      </li>
                    ))}
                  </ul>
                ) : (
                  <Empty title="Nothing was refused or preempted lately." />
                )}
              </Card>
            </div>
          </div>
        )}
      </Shown>
    </>
  );
}

function waitingNote(found: Answer): string {
  if (!found.counts.waiting) return "nothing waits";
  if (found.causes.some((cause) => cause.verdict === "unjudged")) return "some are still being judged";
  const never = found.causes.filter((cause) => cause.verdict === "never").reduce((sum, cause) => sum + cause.count, 0);
  return never ? `${never.toLocaleString("en")} can never start as things are` : "all can start when there is room";
}

function Stat(props: { title: string; value: number; note: string; to: string }): JSX.Element {
  return (
    <section class="card s3 stat">
      <Link to={props.to}>{props.title}</Link>
      <b>{props.value.toLocaleString("en")}</b>
      <span class="small quiet">{props.note}</span>
    </section>
  );
}

function Share(props: { title: string; resource: string; totals: Totals }): JSX.Element {
  const total = props.totals[props.resource] ?? { allocatable: 0, requested: 0 };
  const percent = total.allocatable ? Math.floor((100 * total.requested) / total.allocatable) : 0;
  const text = `${amount(props.resource, total.requested)} of ${amount(props.resource, total.allocatable)}`;
  return (
    <section class="card s3 stat">
      <Link to="/nodes">{props.title}</Link>
      <b>{percent}%</b>
      <Bar used={percent} label={`${percent}%`} />
      <span class="small quiet">
        {text}
        {props.resource === "cpu" ? " cores" : ""}
      </span>
    </section>
  );
}

export function Causes(props: { causes: Cause[] }): JSX.Element {
  if (!props.causes.length) {
    return (
      <Empty title="No pod waits.">
        <span>
          Try a change before you make it: <Link to="/what-if">what if?</Link>
        </span>
      </Empty>
    );
  }
  return (
    <ul class="list">
      {props.causes.slice(0, 8).map((cause) => {
        const first = cause.pods[0];
        return (
          <li key={cause.verdict + cause.because}>
            <span class="title cause">
              <VerdictBadge verdict={cause.verdict} />
              <b>{cause.because}</b>
            </span>
            <span class="small quiet wrap">
              {counted(cause.count, "pod")} asking for {cpu(cause.cpu)} CPU and {bytes(cause.memory)} memory, for{" "}
              {duration(Date.now() / 1000 - (cause.since ?? 0))}: {cause.workloads.slice(0, 4).join(", ")}
              {cause.workloads.length > 4 ? ` and ${cause.workloads.length - 4} more` : ""}
            </span>
            {first && cause.verdict !== "elsewhere" && <Remedies pod={first} />}
            {first && (
              <span class="row small">
                <Link to={why(first)}>Why?</Link>
                <Link to={`/what-if?pod=${encodeURIComponent(full(first))}`}>What if?</Link>
              </span>
            )}
          </li>
        );
      })}
      {props.causes.length > 8 && (
        <li>
          <Link to="/waiting">{counted(props.causes.length - 8, "more cause")}</Link>
        </li>
      )}
    </ul>
  );
}
