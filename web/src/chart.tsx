// A line chart over time with uPlot.

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { clock, hour } from "./format";
import { useTheme } from "./theme";

const SHORT = new Intl.NumberFormat("en", { notation: "compact" });

export interface Line {
  label: string;
  values: number[];
  colour: string;
  suffix?: string;
}

export function Chart(props: { label: string; time: number[]; lines: Line[]; at: number; onPick: (index: number) => void; most?: number }): JSX.Element {
  const host = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const theme = useTheme();
  const pick = useRef(props.onPick);
  pick.current = props.onPick;
  const data: uPlot.AlignedData = [props.time, ...props.lines.map((line) => line.values)];

  useEffect(() => {
    const element = host.current;
    if (!element) return;
    const style = getComputedStyle(document.documentElement);
    const axis = { stroke: style.getPropertyValue("--quiet"), grid: { stroke: style.getPropertyValue("--line"), width: 1 }, ticks: { stroke: style.getPropertyValue("--line"), width: 1 } };
    const made = new uPlot(
      {
        width: element.clientWidth,
        height: 190,
        padding: [10, 28, 0, 0],
        cursor: { y: false, drag: { x: false, y: false } },
        legend: { live: true },
        scales: { y: { range: (_, __, high) => [0, Math.max(props.most ?? 1, high * 1.1)] } },
        axes: [{ ...axis, space: 80, values: (_, times, __, ___, step) => times.map((time) => (step < 60 ? clock(time) : hour(time))) }, { ...axis, size: 48, values: (_, amounts) => amounts.map((amount) => SHORT.format(amount)) }],
        series: [
          { value: (_: uPlot, time: number | null) => (time === null ? "" : clock(time)) },
          ...props.lines.map((line) => ({
            label: line.label,
            stroke: line.colour,
            width: 2,
            points: { show: false },
            value: (_: uPlot, value: number | null) => (value === null ? "" : `${value.toLocaleString("en")}${line.suffix ?? ""}`),
          })),
        ],
        hooks: {
          ready: [
            (plot) =>
              plot.over.addEventListener("click", () => {
                if (plot.cursor.idx !== null && plot.cursor.idx !== undefined) pick.current(plot.cursor.idx);
              }),
          ],
        },
      },
      data,
      element,
    );
    chart.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: 190 }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      chart.current = null;
    };
  }, [theme, props.lines.length]);

  useEffect(() => {
    const plot = chart.current;
    if (!plot) return;
    plot.setData(data);
    const time = props.time[props.at];
    if (time !== undefined) plot.setCursor({ left: plot.valToPos(time, "x"), top: 10 }, false);
  }, [props.time, props.lines, props.at, theme]);

  return <div class="chart" ref={host} role="img" aria-label={props.label} />;
}
