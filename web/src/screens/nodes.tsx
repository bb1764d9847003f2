import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { NodeColumns, NodeDetail } from "../api";
import { ago, amount, bytes, counted, cpu, full } from "../format";
import { useLive } from "../live";
import { HeatMap, Legend, type Measure, MEASURES } from "../map";
import { Bar, Card, Empty, Head, Shown, Switch, Table } from "../parts";
import { Link, setQuery, useLocation, why } from "../router";
import { useTheme } from "../theme";

const ZONE = "topology.kubernetes.io/zone";

export function Nodes(): JSX.Element {
  const { query } = useLocation();
  const live = useLive<NodeColumns>("/api/nodes");
  const theme = useTheme();
  const [zoom, setZoom] = useState(1);
  const measure = (query.get("by") ?? "cpu") as Measure;
  const filter = query.get("search") ?? "";
  const open = query.get("node") ?? "";
  return (
    <>
      <Head title="Nodes">
        <input
          type="search"
          placeholder="Search nodes"
          aria-label="Search nodes"
          value={filter}
          onInput={(event) => setQuery({ search: event.currentTarget.value })}
        />
      </Head>
      <Shown live={live}>
        {(nodes) => {
          const group = query.get("group") ?? (nodes.labels[ZONE] ? ZONE : "");
          const found = filter ? nodes.names.filter((name) => name.toLowerCase().includes(filter.toLowerCase())).length : nodes.names.length;
          return (
            <div class="grid">
              {open && <Detail name={open} />}
              <Card
                title={filter ? `${counted(found, "node")} of ${nodes.names.length.toLocaleString("en")}` : counted(nodes.names.length, "node")}
                action={
                  <span class="row">
                    <label class="row small">
                      grouped by
                      <select value={group} onChange={(event) => setQuery({ group: event.currentTarget.value })}>
                        <option value="-">nothing</option>
                        {Object.keys(nodes.labels).map((label) => (
                          <option key={label} value={label}>
                            {label}
                          </option>
                        ))}
                      </select>
                    </label>
                    <span class="switch" role="group" aria-label="Zoom">
                      <button aria-label="Smaller cells" onClick={() => setZoom(Math.max(0.5, zoom / 1.4))}>
                        −
                      </button>
                      <button aria-label="Larger cells" onClick={() => setZoom(Math.min(6, zoom * 1.4))}>
                        +
                      </button>
                    </span>
                  </span>
                }
                bare
              >
                <div class="body stack">
                  <Switch label="Coloured by" value={measure} options={MEASURES} onChange={(value) => setQuery({ by: value === "cpu" ? "" : value })} />
                  <Legend measure={measure} nodes={nodes} theme={theme} />
                </div>
                {nodes.names.length ? (
                  <HeatMap nodes={nodes} measure={measure} group={group} filter={filter} height={nodes.names.length > 200 ? 460 : 260} zoom={zoom} onOpen={(name) => setQuery({ node: name })} />
                ) : (
                  <Empty title="There are no nodes, or you may not list them.">
                    <span>
                      <code>wharf up --nodes 3</code> makes simulated ones.
                    </span>
                  </Empty>
                )}
              </Card>
              {nodes.names.length > 0 && <List nodes={nodes} filter={filter} />}
            </div>
          );
        }}
      </Shown>
    </>
  );
}

function List(props: { nodes: NodeColumns; filter: string }): JSX.Element {
  const { nodes } = props;
  const rows = useMemo(
    () =>
      nodes.names
        .map((name, index) => ({ name, index }))
        .filter(({ name }) => name.toLowerCase().includes(props.filter.toLowerCase()))
        .sort((left, right) => (nodes.cpu[right.index] ?? 0) - (nodes.cpu[left.index] ?? 0) || left.index - right.index),
    [nodes, props.filter],
  );
  return (
    <Card title="As a list" note="fullest first" bare>
      <Table
        label="Nodes"
        step={20}
        rows={rows}
        keyOf={(row) => row.name}
        columns={[
          { title: "Node", lead: true, cell: (row) => <Link to={`/nodes?node=${encodeURIComponent(row.name)}`}>{row.name}</Link> },
          { title: "State", short: true, cell: ({ index }) => <State ready={nodes.ready[index]!} cordoned={nodes.cordoned[index]!} /> },
          { title: "CPU", cell: ({ index }) => <Percent value={nodes.cpu[index]!} /> },
          { title: "Memory", cell: ({ index }) => <Percent value={nodes.memory[index]!} /> },
          { title: "Reserved, unused", number: true, cell: ({ index }) => `${nodes.reserved[index]}%` },
          { title: "Devices", number: true, cell: ({ index }) => (nodes.devices[index]! < 0 ? "none" : `${nodes.devices[index]}%`) },
          { title: "Pods", number: true, cell: ({ index }) => nodes.pods[index] },
          { title: "Unit", cell: ({ index }) => nodes.unit[index] || "none" },
        ]}
      />
    </Card>
  );
}

function Percent(props: { value: number }): JSX.Element {
  return (
    <span class="row" style={{ flexWrap: "nowrap" }}>
      <span style={{ width: "80px" }}>
        <Bar alarm used={props.value} label={`${props.value}%`} />
      </span>
      <span class="small">{props.value}%</span>
    </span>
  );
}

function State(props: { ready: boolean; cordoned: boolean }): JSX.Element {
  if (!props.ready) return <span class="badge bad">not ready</span>;
  return props.cordoned ? <span class="badge warn">cordoned</span> : <span class="badge good">ready</span>;
}

function Detail(props: { name: string }): JSX.Element {
  const live = useLive<NodeDetail>(`/api/nodes/${encodeURIComponent(props.name)}`);
  return (
    <Card
      title={<span class="wrap">{props.name}</span>}
      action={
        <span class="row">
          <Link class="button" to={`/what-if?change=${btoa(JSON.stringify({ drains: [props.name] })).replaceAll("=", "")}`}>
            What if it is drained?
          </Link>
          <button onClick={() => setQuery({ node: "" })}>Close</button>
        </span>
      }
    >
      <Shown live={live}>
        {(node) => (
          <div class="stack">
            <div class="row">
              <State ready={node.ready} cordoned={node.cordoned} />
              {node.unit.map((unit) => (
                <span class="badge note" key={unit}>
                  unit {unit}
                </span>
              ))}
              {node.taints.map((taint) => (
                <span class="badge warn" key={taint.key + taint.effect}>
                  {taint.key}
                  {taint.value ? `=${taint.value}` : ""}:{taint.effect}
                </span>
              ))}
              <span class="quiet small">created {ago(node.since)}</span>
            </div>
            <div class="scores">
              {node.resources.map((resource) => {
                const used = resource.name === "pods" ? node.pods.length : resource.requested;
                const held = node.reservations.reduce((sum, each) => sum + Math.max(0, (each.allocatable[resource.name] ?? 0) - (each.allocated[resource.name] ?? 0)), 0);
                const share = resource.allocatable ? (100 * used) / resource.allocatable : 0;
                const second = resource.allocatable ? (100 * held) / resource.allocatable : 0;
                return (
                  <div class="score amounts" key={resource.name}>
                    <span class="wrap">{resource.name}</span>
                    <Bar tall used={share} second={second} label={`${Math.round(share)}% requested${second ? `, ${Math.round(second)}% reserved` : ""}`} />
                    <span class="small" style={{ textAlign: "right" }}>
                      {amount(resource.name, used)} of {amount(resource.name, resource.allocatable)}
                    </span>
                  </div>
                );
              })}
              {node.devices.map((device) => (
                <div class="score amounts" key={device.resource + device.name}>
                  <span class="wrap" title={Object.entries(device.properties).map(([key, value]) => `${key}=${value}`).join(", ")}>
                    {device.name} <span class="small quiet">{device.resource}</span>
                  </span>
                  <Bar tall used={device.count ? (100 * device.used) / device.count : 0} label={`${device.used} of ${device.count} devices`} />
                  <span class="small" style={{ textAlign: "right" }}>
                    {device.used} of {counted(device.count, "device")}
                  </span>
                </div>
              ))}
            </div>
            {node.reservations.length > 0 && (
              <p class="small">
                Reservations: {node.reservations.map((each) => `${each.name} (${each.phase})`).join(", ")}; what is reserved and not used is amber.
              </p>
            )}
            <Table
              label={`Pods on ${node.name}`}
              step={25}
              rows={[...node.pods].sort((left, right) => right.cpu - left.cpu)}
              keyOf={full}
              columns={[
                { title: "Pod", lead: true, cell: (pod) => <Link to={why(pod)}>{full(pod)}</Link> },
                { title: "Phase", short: true, cell: (pod) => pod.phase },
                { title: "Workload", cell: (pod) => pod.workload || "none" },
                { title: "CPU", number: true, cell: (pod) => cpu(pod.cpu) },
                { title: "Memory", number: true, cell: (pod) => bytes(pod.memory) },
                { title: "Age", short: true, cell: (pod) => ago(pod.since) },
              ]}
            />
          </div>
        )}
      </Shown>
    </Card>
  );
}
