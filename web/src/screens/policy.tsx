import type { JSX } from "preact";
import type { EventRow, Place } from "../api";
import { encode, NOTHING } from "../change";
import { ago, counted, full } from "../format";
import { useLive } from "../live";
import { Card, Empty, Head, NamePicker, Shown, Table } from "../parts";
import { Link, setQuery, useLocation } from "../router";
import { yaml } from "./why";

interface Policy {
  name: string;
  required: Record<string, unknown>;
  allowed: Record<string, unknown>;
  default: Record<string, unknown>;
  own: boolean;
  onlyReports: boolean;
  violations: number;
  problems: string[];
}

interface Subject {
  subject: string;
  namespace: string;
  policies: string[];
}

export function PolicyScreen(): JSX.Element {
  const { query } = useLocation();
  const live = useLive<{ policies?: Policy[]; subjects?: Subject[]; refused: EventRow[] }>("/api/policy");
  const who = query.get("who") ?? "";
  return (
    <>
      <Head title="Policy" note="Who may ask the scheduler for what: tolerations, selectors, priority classes, schedulers." />
      <Shown live={live}>
        {(found) => {
          const policies = found.policies ?? [];
          const subjects = (found.subjects ?? []).filter((row) => `${row.subject} ${row.namespace}`.toLowerCase().includes(who.toLowerCase()));
          return (
            <div class="grid">
              <Card
                title="Who may use which policy"
                note={counted(subjects.length, "subject")}
                bare
                action={<input type="search" placeholder="Who" aria-label="Search subjects" value={who} onInput={(event) => setQuery({ who: event.currentTarget.value })} />}
              >
                {subjects.length ? (
                  <Table
                    label="Subjects and policies"
                    step={30}
                    rows={subjects}
                    keyOf={(row) => row.subject + row.namespace}
                    columns={[
                      { title: "Subject", lead: true, cell: (row) => row.subject },
                      { title: "In", cell: (row) => row.namespace || "all namespaces" },
                      ...policies.map((policy) => ({
                        title: policy.name,
                        short: true,
                        cell: (row: Subject) => (row.policies.includes(policy.name) ? <span class="badge good">may use</span> : <span class="quiet">no</span>),
                      })),
                    ]}
                  />
                ) : (
                  <Empty title={who ? "Nobody matches." : "Nobody may use a policy, or you may not list roles and bindings."} />
                )}
              </Card>
              <div class="s7 stack">
                <Card title="Policies" bare>
                  {policies.length ? (
                    <ul class="list">
                      {policies.map((policy) => (
                        <li key={policy.name}>
                          <span class="title">
                            <b>{policy.name}</b>
                            <span class="badge">{policy.own ? "own" : "shipped"}</span>
                            {policy.onlyReports && <span class="badge note">reports only</span>}
                            {policy.violations > 0 && <span class="badge warn">{counted(policy.violations, "violation")}</span>}
                          </span>
                          {policy.problems.map((problem) => (
                            <span class="problem" key={problem}>
                              {problem}
                            </span>
                          ))}
                          <Rules title="requires" rules={policy.required} />
                          <Rules title="allows" rules={policy.allowed} />
                          <Rules title="sets by default" rules={policy.default} />
                        </li>
                      ))}
                    </ul>
                  ) : (
                    <Empty title="There is no scheduling policy, or you may not list them." />
                  )}
                </Card>
                <Suggestion />
              </div>
              <div class="s5 stack">
                <Card title="Refused requests" note="from events" bare>
                  {found.refused.length ? (
                    <ul class="list">
                      {found.refused.map((event) => (
                        <li key={event.kind + full(event)}>
                          <span class="title">
                            <b>
                              {event.kind} {full(event)}
                            </b>
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
                    <Empty title="No workload was refused lately." />
                  )}
                </Card>
              </div>
            </div>
          );
        }}
      </Shown>
    </>
  );
}

/** The tightest policy that admits what runs in a namespace, to be tried before it is applied. */
function Suggestion(): JSX.Element {
  const { query } = useLocation();
  const namespace = query.get("namespace") ?? "";
  const known = useLive<{ objects: Place[]; count: number }>("/api/objects?kind=namespaces", ["namespaces"]);
  const found = useLive<{ yaml: string }>(namespace ? `/api/policy/suggestion?namespace=${encodeURIComponent(namespace)}` : null, ["pods"]);
  const namespaces = [...new Set([...(known.value?.objects ?? []).map((each) => each.name), ...(namespace ? [namespace] : [])])].sort();
  return (
    <Card
      title="Suggestion"
      note="the tightest policy that admits what runs in a namespace"
      action={
        <NamePicker
          label="namespace"
          value={namespace}
          names={namespaces}
          complete={!known.value || known.value.count <= known.value.objects.length}
          empty="choose a namespace"
          onChoose={(chosen) => setQuery({ namespace: chosen })}
        />
      }
    >
      {namespace ? (
        <Shown live={found}>
          {(suggested) => (
            <>
              <pre class="mono wrap">{suggested.yaml}</pre>
              <Link class="button" to={`/what-if?change=${encode({ ...NOTHING, yaml: suggested.yaml })}`}>
                Try it
              </Link>
            </>
          )}
        </Shown>
      ) : (
        <Empty title="Choose a namespace.">Its pods are read, and nothing is changed.</Empty>
      )}
    </Card>
  );
}

/** The rules of one part of a policy; an empty list or map allows everything. */
function Rules(props: { title: string; rules: Record<string, unknown> }): JSX.Element | null {
  const parts = Object.entries(props.rules);
  if (!parts.length) return null;
  return (
    <span class="small">
      <span class="quiet">{props.title}</span>
      {parts.map(([name, value]) => {
        const open = value !== null && typeof value === "object" && !Object.keys(value).length;
        return (
          <span key={name} style={{ display: "block" }} class="mono wrap">
            {open ? `${name}: anything` : Array.isArray(value) && value.every((each) => typeof each !== "object") ? `${name}: ${value.join(", ")}` : <span style={{ whiteSpace: "pre-wrap" }}>{`${name}:\n${yaml(value, "  ")}`}</span>}
          </span>
        );
      })}
    </span>
  );
}
