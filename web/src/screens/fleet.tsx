import type { JSX } from "preact";
import { ago, counted, full } from "../format";
import { useLive } from "../live";
import { Card, Empty, Head, Shown, Table } from "../parts";

interface Cluster {
  name: string;
  available: string;
  message: string;
  since: number | null;
  labels: Record<string, string>;
  taints: { key: string; effect: string }[];
  allocatable: Record<string, string>;
  version: string;
}

interface Outcome {
  selected: boolean;
  plugin?: string;
  reason?: string;
  rank?: number;
  total?: number;
  scores?: Record<string, { weight: number; score: number | null }>;
  capacity?: string;
}

interface Placement {
  namespace: string;
  name: string;
  status: string;
  message: string;
  selected: string[];
  decided: string[];
  clusters: Record<string, Outcome>;
}

export function Fleet(): JSX.Element {
  const live = useLive<{ clusters?: Cluster[]; placements?: Placement[] }>("/api/fleet");
  return (
    <>
      <Head title="Fleet" note="Clusters, and why each placement has the clusters that it has." />
      <Shown live={live}>
        {(found) =>
          found.clusters?.length ? (
            <div class="grid">
              {found.placements?.map((placement) => <Decision key={full(placement)} placement={placement} />)}
              <Card title="Clusters" note={counted(found.clusters.length, "cluster")} bare>
                <Table
                  label="Clusters"
                  rows={found.clusters}
                  keyOf={(row) => row.name}
                  columns={[
                    { title: "Cluster", lead: true, cell: (row) => row.name },
                    { title: "Agent", short: true, cell: (row) => <span class={`badge ${row.available === "True" ? "good" : row.available === "False" ? "bad" : "warn"}`}>{row.available === "True" ? "available" : row.available === "False" ? "not available" : "silent"}</span> },
                    { title: "Said", cell: (row) => [row.message || "all is well", ago(row.since)].filter(Boolean).join(", ") },
                    { title: "Taints", cell: (row) => row.taints.map((taint) => `${taint.key.split("/").pop()}:${taint.effect}`).join(", ") || "none" },
                    { title: "Labels", cell: (row) => Object.entries(row.labels).map(([key, value]) => `${key.split("/").pop()}=${value}`).join(", ") || "none" },
                    { title: "Allocatable", cell: (row) => Object.entries(row.allocatable).map(([key, value]) => `${key} ${value}`).join(", ") || "unknown" },
                  ]}
                />
              </Card>
            </div>
          ) : (
            <Card title="Clusters" bare>
              <Empty title="No cluster is registered, or you may not list them.">
                <span>Create ManagedClusters and a Placement to choose among them.</span>
              </Empty>
            </Card>
          )
        }
      </Shown>
    </>
  );
}

function Decision(props: { placement: Placement }): JSX.Element {
  const { placement } = props;
  const rows = Object.entries(placement.clusters)
    .map(([name, outcome]) => ({ name, ...outcome }))
    .sort((left, right) => (left.rank ?? 1e9) - (right.rank ?? 1e9) || left.name.localeCompare(right.name));
  const prioritizers = [...new Set(rows.flatMap((row) => Object.keys(row.scores ?? {})))].sort();
  return (
    <Card
      title={`Placement ${full(placement)}`}
      note={placement.selected.length ? `selects ${placement.selected.join(", ")}` : "selects nothing"}
      bare
    >
      {placement.message && (
        <div class="body">
          <div class="notice">{placement.message}</div>
        </div>
      )}
      <Table
        label={`Clusters of ${full(placement)}`}
        rows={rows}
        keyOf={(row) => row.name}
        columns={[
          { title: "Cluster", lead: true, cell: (row) => row.name },
          { title: "Outcome", short: true, cell: (row) => <span class={`badge ${row.selected ? "good" : row.plugin && row.total === undefined ? "bad" : ""}`}>{row.selected ? "selected" : row.total === undefined ? "refused" : "not selected"}</span> },
          { title: "Rank", number: true, cell: (row) => row.rank ?? "none" },
          ...prioritizers.map((name) => ({
            title: name,
            number: true,
            cell: (row: (typeof rows)[number]) => {
              const part = row.scores?.[name];
              return part ? `${part.score ?? "no data"} × ${part.weight}` : "none";
            },
          })),
          { title: "Total", number: true, cell: (row) => <b>{row.total ?? "none"}</b> },
          { title: "Why not", cell: (row) => (row.reason ? `${row.plugin}: ${row.reason}` : "") },
        ]}
      />
    </Card>
  );
}
