// The heat map: layout and painting of thousands of cells on a canvas. Pure, so that it can be tested without a browser.

export interface CellGroup {
  title: string;
  members: number[]; // positions of the nodes
}

export interface PlacedGroup extends CellGroup {
  left: number;
  top: number;
  columns: number;
}

export interface Layout {
  groups: PlacedGroup[];
  cell: number; // size of a cell with its gap
  width: number;
  height: number;
  heading: number;
}

const HEADING = 24;
const PAD = 14;
const BETWEEN = 16; // pixels between groups
const LARGEST = 112;
const SMALLEST = 9;
const NARROWEST = 96; // pixels for the heading of a group

/** Cells below a heading for each group; small groups share a row. The cells are as large as `height` allows. */
export function layout(groups: CellGroup[], width: number, height: number, zoom = 1, smallest = SMALLEST): Layout {
  const heading = groups.length > 1 || groups[0]?.title ? HEADING : 0;
  let cell = LARGEST;
  while (cell > smallest && place(groups, width, cell, heading).height > height) cell -= cell > 40 ? 4 : 1;
  return place(groups, width, Math.max(Math.min(6, smallest), Math.round(cell * zoom)), heading);
}

function place(groups: CellGroup[], width: number, cell: number, heading: number): Layout {
  const inner = Math.max(cell, width - 2 * PAD);
  const most = Math.max(1, Math.floor(inner / cell));
  let left = 0;
  let top = PAD;
  let tallest = 0;
  const placed = groups.map((group) => {
    const columns = Math.min(most, Math.max(1, group.members.length));
    const wide = Math.max(columns * cell, heading ? NARROWEST : 0);
    if (left > 0 && left + wide > inner) {
      top += tallest + BETWEEN;
      left = 0;
      tallest = 0;
    }
    const made = { ...group, left: PAD + left, top: top + heading, columns };
    left += wide + BETWEEN;
    tallest = Math.max(tallest, heading + Math.ceil(group.members.length / columns) * cell);
    return made;
  });
  return { groups: placed, cell, width, height: Math.ceil(top + tallest + PAD), heading };
}

/** The node at a point; -1 if there is none. */
export function hit(made: Layout, x: number, y: number): number {
  for (const group of made.groups) {
    const row = Math.floor((y - group.top) / made.cell);
    const column = Math.floor((x - group.left) / made.cell);
    if (row < 0 || column < 0 || column >= group.columns) continue;
    const found = group.members[row * group.columns + column];
    if (found !== undefined) return found;
  }
  return -1;
}

/** The corner of a node's cell. */
export function corner(made: Layout, node: number): { x: number; y: number } | null {
  for (const group of made.groups) {
    const position = group.members.indexOf(node);
    if (position >= 0) {
      return { x: group.left + (position % group.columns) * made.cell, y: group.top + Math.floor(position / group.columns) * made.cell };
    }
  }
  return null;
}

const LIGHT: [number, number, number][] = [
  [215, 236, 243],
  [127, 191, 212],
  [42, 143, 176],
  [11, 90, 119],
  [184, 67, 58],
];
const DARK: [number, number, number][] = [
  [29, 51, 61],
  [31, 90, 112],
  [42, 143, 176],
  [99, 196, 226],
  [240, 119, 108],
];
const STOPS = [0, 35, 60, 85, 100];

/** The colour of a share from 0 to 100; what is full is red. */
export function colour(percent: number, dark: boolean): string {
  const ramp = dark ? DARK : LIGHT;
  const value = Math.max(0, Math.min(100, percent));
  let index = 1;
  while (index < STOPS.length - 1 && value > (STOPS[index] ?? 100)) index += 1;
  const low = STOPS[index - 1] ?? 0;
  const high = STOPS[index] ?? 100;
  const part = (value - low) / (high - low || 1);
  const from = ramp[index - 1] ?? ramp[0]!;
  const to = ramp[index] ?? ramp[ramp.length - 1]!;
  return `rgb(${from.map((each, axis) => Math.round(each + (to[axis]! - each) * part)).join(",")})`;
}

/** Black or white, whichever reads better on a colour of the form rgb(r,g,b). */
export function inkOn(fill: string): string {
  const [red = 0, green = 0, blue = 0] = (/rgb\((\d+),(\d+),(\d+)\)/.exec(fill) ?? []).slice(1).map(Number);
  const light = [red, green, blue].map((each) => (each / 255) ** 2.2);
  return 0.2126 * light[0]! + 0.7152 * light[1]! + 0.0722 * light[2]! > 0.2 ? "#0c161d" : "#ffffff";
}

const HUES = [200, 32, 140, 275, 350, 90, 230, 55, 170, 310];

export function category(index: number, dark: boolean): string {
  return index < 0 ? (dark ? "#26323c" : "#dfe5ea") : `hsl(${HUES[index % HUES.length]} ${dark ? "45% 48%" : "52% 52%"})`;
}

export interface Painted {
  fill: (node: number) => string;
  dimmed: (node: number) => boolean;
  crossed: (node: number) => boolean; // not ready, or cordoned
  label: (node: number) => [name: string, value: string];
  ink: (node: number) => string; // for text on the cell
}

export function paint(context: CanvasRenderingContext2D, made: Layout, what: Painted, style: { text: string; quiet: string }): void {
  context.clearRect(0, 0, made.width, made.height);
  const gap = made.cell > 14 ? 3 : 1;
  const size = made.cell - gap;
  const withLabels = made.cell >= 56;
  for (const group of made.groups) {
    if (made.heading) {
      context.fillStyle = style.quiet;
      context.font = "600 12.5px system-ui, sans-serif";
      context.textAlign = "left";
      context.fillText(`${group.title || "none"} · ${group.members.length.toLocaleString("en")}`, group.left, group.top - 8, Math.max(NARROWEST, group.columns * made.cell));
    }
    for (let position = 0; position < group.members.length; position += 1) {
      const node = group.members[position]!;
      const x = group.left + (position % group.columns) * made.cell;
      const y = group.top + Math.floor(position / group.columns) * made.cell;
      context.globalAlpha = what.dimmed(node) ? 0.18 : 1;
      context.fillStyle = what.fill(node);
      context.fillRect(x, y, size, size);
      if (what.crossed(node)) {
        context.strokeStyle = style.text;
        context.lineWidth = 1.5;
        context.beginPath();
        context.moveTo(x, y);
        context.lineTo(x + size, y + size);
        context.stroke();
      }
      if (withLabels) {
        const [name, value] = what.label(node);
        context.fillStyle = what.ink(node);
        context.textAlign = "center";
        context.font = "12px system-ui, sans-serif";
        context.fillText(name, x + size / 2, y + size / 2 - 4, size - 6);
        context.font = "600 14px system-ui, sans-serif";
        context.fillText(value, x + size / 2, y + size / 2 + 15, size - 6);
      }
    }
  }
  context.globalAlpha = 1;
}
