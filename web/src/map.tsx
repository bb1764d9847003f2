// The heat map as a component: pointer, keyboard, zoom.

import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { NodeColumns } from "./api";
import { counted } from "./format";
import { category, type CellGroup, colour, corner, hit, inkOn, layout, paint } from "./heatmap";
import { isDark, useTheme } from "./theme";

export type Measure = "cpu" | "memory" | "reserved" | "free" | "devices" | "unit";

export const MEASURES: [Measure, string][] = [
  ["cpu", "CPU requested"],
  ["memory", "Memory requested"],
  ["reserved", "Reserved"],
  ["free", "CPU free"],
  ["devices", "Devices"],
  ["unit", "Unit"],
];

const DENSE = 3; // pixels

export function groupNodes(nodes: NodeColumns, label: string): CellGroup[] {
  const all = nodes.names.map((_, index) => index);
  const column = nodes.labels[label];
  if (!column) return [{ title: "", members: all }];
  const groups = column.values.map((title) => ({ title, members: [] as number[] }));
  const rest: CellGroup = { title: "without this label", members: [] };
  for (const node of all) (groups[column.of[node] ?? -1] ?? rest).members.push(node);
  return [...groups, rest].filter((group) => group.members.length);
}

export function measured(nodes: NodeColumns, measure: Measure, node: number): number {
  if (measure === "free") return 100 - (nodes.cpu[node] ?? 0);
  if (measure === "unit") return 0;
  return nodes[measure][node] ?? 0;
}

export function describe(nodes: NodeColumns, node: number): string {
  const parts = [
    `${nodes.names[node]}`,
    `${nodes.cpu[node]}% of CPU, ${nodes.memory[node]}% of memory requested`,
    counted(nodes.pods[node] ?? 0, "pod"),
  ];
  if (nodes.reserved[node]) parts.push(`${nodes.reserved[node]}% of CPU reserved and unused`);
  if ((nodes.devices[node] ?? -1) >= 0) parts.push(`${nodes.devices[node]}% of devices used`);
  if (nodes.unit[node]) parts.push(`unit ${nodes.unit[node]}`);
  if (!nodes.ready[node]) parts.push("not ready");
  if (nodes.cordoned[node]) parts.push("cordoned");
  return parts.join(" · ");
}

export function HeatMap(props: {
  nodes: NodeColumns;
  measure: Measure;
  group: string;
  filter: string;
  height: number;
  dense?: boolean; // as small as it takes to fit
  zoom?: number;
  fill?: (node: number) => number;
  onOpen: (name: string) => void;
}): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [marked, setMarked] = useState(-1);
  const theme = useTheme();
  const { nodes, measure, filter } = props;
  const units = useMemo(() => [...new Set(nodes.unit)].filter(Boolean).sort(), [nodes]);
  const made = useMemo(
    () => layout(groupNodes(nodes, props.group), width, props.height, props.zoom ?? 1, props.dense ? DENSE : undefined),
    [nodes, props.group, width, props.height, props.zoom, props.dense],
  );
  const dimmed = useMemo(() => {
    const wanted = filter.trim().toLowerCase();
    return wanted ? nodes.names.map((name) => !name.toLowerCase().includes(wanted)) : null;
  }, [nodes, filter]);

  useEffect(() => {
    const element = canvas.current?.parentElement;
    if (!element) return;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    setWidth(element.clientWidth);
    return () => observer.disconnect();
  }, []);

  useEffect(() => {
    const element = canvas.current;
    const context = element?.getContext("2d");
    if (!element || !context || !width) return;
    const scale = devicePixelRatio || 1;
    const wide = Math.round(width * scale);
    const high = Math.round(made.height * scale);
    if (element.width !== wide || element.height !== high) {
      element.width = wide;
      element.height = high;
      element.style.height = `${made.height}px`;
    }
    const frame = requestAnimationFrame(() => {
      context.setTransform(scale, 0, 0, scale, 0, 0);
      const dark = isDark();
      const style = getComputedStyle(document.documentElement);
      const value = props.fill ?? ((node: number) => measured(nodes, measure, node));
      const fill = (node: number): string => {
        if (measure === "unit" && !props.fill) return category(units.indexOf(nodes.unit[node] ?? ""), dark);
        const share = value(node);
        return share < 0 ? category(-1, dark) : colour(share, dark);
      };
      paint(
        context,
        made,
        {
          fill,
          ink: (node) => (fill(node).startsWith("rgb") ? inkOn(fill(node)) : dark ? "#ffffff" : "#0c161d"),
          dimmed: (node) => dimmed?.[node] ?? false,
          crossed: (node) => !nodes.ready[node] || Boolean(nodes.cordoned[node]),
          label: (node) => [nodes.names[node] ?? "", measure === "unit" ? (nodes.unit[node]?.split(": ")[1] ?? "") : value(node) < 0 ? "none" : `${value(node)}%`],
        },
        { text: style.getPropertyValue("--text"), quiet: style.getPropertyValue("--quiet") },
      );
    });
    return () => cancelAnimationFrame(frame);
  }, [made, nodes, measure, dimmed, width, theme, props.fill]);

  const at = (event: MouseEvent): number => {
    const box = canvas.current!.getBoundingClientRect();
    return hit(made, event.clientX - box.left, event.clientY - box.top);
  };
  const open = (node: number): void => {
    const name = nodes.names[node];
    if (name) props.onOpen(name);
  };
  const key = (event: KeyboardEvent): void => {
    const columns = made.groups[0]?.columns ?? 1;
    const steps: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
    const order = made.groups.flatMap((group) => group.members);
    const step = steps[event.key];
    if (step !== undefined) {
      event.preventDefault();
      const position = marked < 0 ? 0 : Math.max(0, Math.min(order.length - 1, order.indexOf(marked) + step));
      setMarked(order[position] ?? -1);
    } else if (event.key === "Enter" && marked >= 0) open(marked);
  };
  const place = marked >= 0 ? corner(made, marked) : null;
  return (
    <div class="map">
      <canvas
        ref={canvas}
        tabIndex={0}
        role="application"
        aria-label={`${counted(nodes.names.length, "node")} as a heat map. Arrow keys move, Enter opens a node. ${marked >= 0 ? describe(nodes, marked) : ""}`}
        onMouseMove={(event) => setMarked(at(event))}
        onMouseLeave={() => setMarked(-1)}
        onClick={(event) => open(at(event))}
        onKeyDown={key}
      />
      {/* The mark is above the canvas, so that moving it paints nothing anew. */}
      {place && <div class="mark" style={{ transform: `translate(${place.x - 2}px, ${place.y - 2}px)`, width: `${made.cell + 1}px`, height: `${made.cell + 1}px` }} />}
      {place && (
        <div class="tip" style={{ left: `${Math.max(4, Math.min(place.x, width - 290))}px`, top: `${place.y + made.cell + 4}px` }}>
          {describe(nodes, marked)}
        </div>
      )}
    </div>
  );
}

export function Legend(props: { measure: Measure; nodes: NodeColumns; theme: string }): JSX.Element {
  if (props.measure === "unit") {
    const units = [...new Set(props.nodes.unit)].filter(Boolean).sort();
    return (
      <div class="legend" key={props.theme}>
        {units.slice(0, 8).map((unit, index) => (
          <span key={unit}>
            <i class="key" style={{ background: category(index, isDark()) }} />
            {unit}
          </span>
        ))}
        {units.length > 8 && <span>and {units.length - 8} more</span>}
        {!units.length && <span>no node belongs to a unit</span>}
      </div>
    );
  }
  return (
    <div class="legend">
      <span>0%</span>
      <span class="ramp" aria-hidden="true" />
      <span>100%</span>
      <span>· a line through a cell: not ready or cordoned</span>
      {props.measure === "devices" && <span>· grey: no devices</span>}
    </div>
  );
}
