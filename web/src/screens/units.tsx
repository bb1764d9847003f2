import type { JSX } from "preact";
import { counted, full } from "../format";
import { useLive } from "../live";
import { Bar, Card, Empty, Head, Shown, Table } from "../parts";
import { Link, why } from "../router";

interface Unit {
  name: string;
  priority: number;
  count: number;
  max: string;
  percent: number | null;
  full: boolean;
  nodes: number;
  nodeNames: string[];
  groups: { labels: Record<string, string>; count: number }[];
  summary: string;
}

interface Policy {
  namespace: string;
  name: string;
  strategy: string;
  selector: string;
  keys: string[];
  units: Unit[];
  problems: string[];
  pods: { name: string; node: string; cost: number }[];
}

export function Units(): JSX.Element {
  const live = useLive<{ policies?: Policy[] }>("/api/units");
  return (
    <>
      <Head title="Units" note="Resource policies: which nodes are filled first, how many pods each may hold, and which pods leave first." />
      <Shown live={live}>
        {(found) =>
          found.policies?.length ? (
            <div class="grid">
              {found.policies.map((policy) => (
                <>
                  <Card key={full(policy)} span={7} title={full(policy)} note={`${policy.selector} · ${policy.strategy === "required" ? "no other nodes" : "other nodes last"}`} bare>
                    {policy.problems.map((problem) => (
                      <div class="problem" key={problem} style={{ margin: "12px" }}>
                        {problem}
                      </div>
                    ))}
                    <ol class="list">
                      {policy.units.map((unit, index) => (
                        <li key={unit.name}>
                          <span class="title">
                            <b>
                              {index + 1}. {unit.name}
                            </b>
                            {unit.full && <span class="badge bad">full</span>}
                            <span class="quiet small">
                              priority {unit.priority}, {counted(unit.nodes, "node")}
                            </span>
                            <span class="spacer" />
                            <span>
                              {unit.count} {unit.max ? `of ${unit.max}${policy.keys.length ? " per group" : ""}` : "pods, no limit"}
                            </span>
                          </span>
                          {unit.percent !== null && <Bar tall alarm used={unit.percent} label={`${unit.percent}% of ${unit.max}`} />}
                          <span class="small quiet wrap">
                            {unit.nodeNames.slice(0, 12).join(", ")}
                            {unit.nodes > 12 ? ` and ${unit.nodes - 12} more` : ""}
                          </span>
                          {unit.groups.map((group) => (
                            <span class="small" key={JSON.stringify(group.labels)}>
                              {Object.entries(group.labels).map(([key, value]) => `${key}=${value}`).join(", ") || "no label"}: {group.count}
                            </span>
                          ))}
                        </li>
                      ))}
                    </ol>
                  </Card>
                  <Card span={5} title="Leaves first" note={`of ${full(policy)}, when scaled in`} bare>
                    {policy.pods.length ? (
                      <Table
                        label={`Deletion order of ${full(policy)}`}
                        step={20}
                        rows={policy.pods}
                        keyOf={(pod) => pod.name}
                        columns={[
                          { title: "Pod", lead: true, cell: (pod) => <Link to={why({ namespace: policy.namespace, name: pod.name })}>{pod.name}</Link> },
                          { title: "Node", cell: (pod) => pod.node || "none" },
                          { title: "Deletion cost", number: true, cell: (pod) => pod.cost },
                        ]}
                      />
                    ) : (
                      <Empty title="No governed pod runs." />
                    )}
                  </Card>
                </>
              ))}
            </div>
          ) : (
            <Card title="Resource policies" bare>
              <Empty title="There is no resource policy, or you may not list them.">
                <span>A ResourcePolicy says which group of nodes is filled first, and how far.</span>
              </Empty>
            </Card>
          )
        }
      </Shown>
    </>
  );
}
