import type { JSX } from "preact";
import type { Start, WaitingPod } from "../api";
import { ago, bytes, counted, cpu, duration, full, moment } from "../format";
import { useLive } from "../live";
import { Card, Empty, Head, Shown, Switch, Table, VerdictBadge } from "../parts";
import { Link, setQuery, useLocation, why } from "../router";

type Filter = "all" | "never" | "waiting" | "other";

export function Waiting(): JSX.Element {
  const { query } = useLocation();
  const live = useLive<{ pods: WaitingPod[]; judged: boolean }>("/api/waiting");
  const judged = live.value?.judged && live.value.pods.length > 0;
  const starts = useLive<{ pods: Start[] }>(judged ? "/api/waiting/starts" : null);
  const startOf = new Map(starts.value?.pods.map((start) => [full(start), start]));
  const filter = (query.get("verdict") ?? "all") as Filter;
  const search = query.get("search") ?? "";
  return (
    <>
      <Head title="Waiting" note="Pods without a node, in the order in which the scheduler tries them.">
        <input
          type="search"
          placeholder="Search"
          aria-label="Search waiting pods"
          value={search}
          onInput={(event) => setQuery({ search: event.currentTarget.value })}
        />
      </Head>
      <Shown live={live}>
        {(found) => {
          const rows = found.pods.filter(
            (pod) =>
              (filter === "all" ||
                pod.verdict === filter ||
                (filter === "other" && pod.verdict !== "never" && pod.verdict !== "waiting")) &&
              `${full(pod)} ${pod.workload} ${pod.because}`.toLowerCase().includes(search.toLowerCase()),
          );
          const count = (verdict: string): number => found.pods.filter((pod) => pod.verdict === verdict).length;
          const never = count("never");
          const waiting = count("waiting");
          return (
            <div class="grid">
              {!found.judged && found.pods.length > 0 && (
                <div class="notice s12">
                  You may not list all pods and nodes, so this shows what the scheduler last said instead of a fresh answer.
                </div>
              )}
              <Card
                title={counted(rows.length, "pod")}
                bare
                action={
                  <Switch
                    label="Verdict"
                    value={filter}
                    options={[
                      ["all", `all ${found.pods.length}`],
                      ["never", `never ${never}`],
                      ["waiting", `waiting ${waiting}`],
                      ["other", `other ${found.pods.length - never - waiting}`],
                    ]}
                    onChange={(value) => setQuery({ verdict: value === "all" ? "" : value })}
                  />
                }
              >
                {rows.length ? (
                  <Table
                    label="Waiting pods"
                    rows={rows}
                    keyOf={full}
                    columns={[
                      { title: "Pod", lead: true, cell: (pod) => <Link to={why(pod)}>{full(pod)}</Link> },
                      { title: "Verdict", short: true, cell: (pod) => <VerdictBadge verdict={pod.verdict} /> },
                      { title: "Would start", cell: (pod) => <WouldStart start={startOf.get(full(pod))} /> },
                      { title: "Because", cell: (pod) => <Because pod={pod} /> },
                      { title: "Asks for", short: true, cell: (pod) => `${cpu(pod.cpu)} CPU, ${bytes(pod.memory)}` },
                      { title: "Priority", number: true, cell: (pod) => pod.priority },
                      { title: "Place", number: true, cell: (pod) => pod.position },
                      { title: "Since", short: true, cell: (pod) => ago(pod.since) },
                      {
                        title: "Ask",
                        short: true,
                        cell: (pod) => (
                          <span class="row">
                            <Link to={why(pod)} label={`Why? ${full(pod)}`}>
                              Why?
                            </Link>
                            <Link to={`/what-if?pod=${encodeURIComponent(full(pod))}`} label={`What if? ${full(pod)}`}>
                              What if?
                            </Link>
                          </span>
                        ),
                      },
                    ]}
                  />
                ) : (
                  <Empty title={found.pods.length ? "No waiting pod matches." : "No pod waits."}>
                    {!found.pods.length && (
                      <span>
                        Would a new one start? <Link to="/what-if">Try it first.</Link>
                      </span>
                    )}
                  </Empty>
                )}
              </Card>
            </div>
          );
        }}
      </Shown>
    </>
  );
}

function WouldStart(props: { start: Start | undefined }): JSX.Element {
  const { start } = props;
  if (start?.verdict === "now") return <span>now on {start.node}</span>;
  if (!start?.startsAt) return <span class="quiet">{start ? "no known time" : "simulating …"}</span>;
  const at = Date.parse(start.startsAt) / 1000;
  return (
    <span title={moment(at)}>
      in {duration(at - Date.now() / 1000)} on {start.node}
      {start.waitsFor?.length ? (
        <span class="quiet small" style={{ display: "block" }}>
          when {start.waitsFor.join(", ")} has ended
        </span>
      ) : null}
    </span>
  );
}

function Because(props: { pod: WaitingPod }): JSX.Element {
  const { pod } = props;
  if (!pod.reasons.length) return <span>{pod.because}</span>;
  return (
    <span>
      {pod.reasons.slice(0, 4).map((reason) => (
        <span key={reason.plugin + reason.reason} style={{ display: "block" }}>
          {reason.reason} <span class="quiet small">on {counted(reason.nodes, "node")}</span>
        </span>
      ))}
      {pod.reasons.length > 4 && <span class="quiet small">and {pod.reasons.length - 4} more reasons</span>}
    </span>
  );
}
