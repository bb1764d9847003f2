import { describe, expect, it } from "vitest";
import { ago, bytes, counted, cpu, duration } from "../src/format";
import { windowOf } from "../src/screens/promises";
import { film, nearest } from "../src/screens/timeline";
import { workloadOf } from "../src/screens/what-if";
import { yaml } from "../src/screens/why";
import { locate } from "../src/yaml-path";

describe("amounts and times", () => {
  it("are short and exact enough", () => {
    expect([cpu(0), cpu(250), cpu(1500), cpu(24000)]).toEqual(["0", "250m", "1.5", "24"]);
    expect([bytes(512 * 2 ** 20), bytes(1.5 * 2 ** 30), bytes(12)]).toEqual(["512 Mi", "1.5 Gi", "12"]);
    expect([duration(59), duration(3700), duration(90000)]).toEqual(["59 s", "1 h 1 min", "1 d 1 h"]);
    expect([ago(null), ago(100, 100), ago(40, 100)]).toEqual(["", "now", "1 min ago"]);
    expect([counted(1, "pod"), counted(5000, "pod")]).toEqual(["1 pod", "5,000 pods"]);
  });
});

describe("pods of one workload", () => {
  const pod = (name: string) => ({ kind: "Pod", namespace: "shop", name, change: "new", before: null, after: null });
  it("are one group", () => {
    expect(workloadOf(pod("web-775df77d5d-x2tl2"))).toBe("Pods of shop/web");
    expect(workloadOf(pod("db-0"))).toBe("Pods of shop/db");
    expect(workloadOf(pod("checkout"))).toBe("Pod shop/checkout");
    expect(workloadOf({ ...pod("web"), kind: "Deployment" })).toBe("Deployment shop/web");
  });
});

describe("where the cursor is in YAML", () => {
  const text = "apiVersion: apps/v1\nkind: Deployment\nspec:\n  template:\n    spec:\n      containers:\n      - name: c\n        re";
  it("is the path of the mapping, with the kind of its document", () => {
    const at = locate(text, text.length);
    expect([at.apiVersion, at.kind, at.path, at.word]).toEqual(["apps/v1", "Deployment", "spec.template.spec.containers", "re"]);
    expect(locate(`${text}\n---\nki`, text.length + 7).path).toBe("");
  });
  it("is a value behind a colon", () => {
    expect(locate("spec:\n  a: b", 12).isValue).toBe(true);
  });
});

describe("a film", () => {
  it("is made of frames", () => {
    const played = film({ frames: [{ time: 1, nodes: 1, waiting: 0, running: 1, cpu: 50, memory: 1, fill: { b: 50, a: 7 } }], expectations: [], events: [], refused: [] });
    expect(played.nodesAt).toEqual([{ names: ["a", "b"], fill: [7, 50] }]);
    expect(nearest([10, 20, 30], 26)).toBe(2);
  });
});

describe("a chart of reservations", () => {
  it("shows now, and no more than two days ahead", () => {
    const [start, end] = windowOf([{ start: 0, end: null }, { start: 990_000, end: 9e9 }], 1_000_000);
    expect(start).toBe(1_000_000 - 86400);
    expect(end).toBe(1_000_000 + 2 * 86400);
  });
});

describe("a value as YAML", () => {
  it("is indented, with empty ones in line", () => {
    expect(yaml({ a: { b: [1, { c: "x" }] }, d: [], e: {} })).toBe("a:\n  b:\n    - 1\n    - c: x\nd: []\ne: {}");
  });
});
