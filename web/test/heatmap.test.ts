import { describe, expect, it } from "vitest";
import { colour, corner, hit, inkOn, layout } from "../src/heatmap";

const many = (count: number): number[] => Array.from({ length: count }, (_, index) => index);

describe("layout", () => {
  it("gives few nodes large cells and many nodes small ones", () => {
    expect(layout([{ title: "", members: many(3) }], 800, 260).cell).toBeGreaterThan(80);
    const large = layout([{ title: "", members: many(5000) }], 1200, 460);
    expect(large.cell).toBeLessThan(14);
    expect(large.height).toBeLessThan(700);
  });

  it("puts small groups side by side, and the next row below the tallest", () => {
    const made = layout(["a", "b", "c"].map((title, index) => ({ title, members: [index] })), 800, 260);
    expect(new Set(made.groups.map((group) => group.top)).size).toBe(1);
    const narrow = layout(["a", "b", "c"].map((title, index) => ({ title, members: [index] })), 150, 260);
    expect(new Set(narrow.groups.map((group) => group.top)).size).toBe(3);
  });

  it("finds every node where it is drawn, and nothing between the groups", () => {
    const made = layout([{ title: "a", members: many(7) }, { title: "b", members: [7, 8] }], 400, 200);
    for (let node = 0; node < 9; node += 1) {
      const at = corner(made, node)!;
      expect(hit(made, at.x + 2, at.y + 2)).toBe(node);
    }
    expect(hit(made, 1, 1)).toBe(-1);
    expect(corner(made, 99)).toBeNull();
  });
});

describe("colour", () => {
  it("is red only where it is full, and never leaves the ramp", () => {
    expect(colour(100, false)).toBe("rgb(184,67,58)");
    expect(colour(250, false)).toBe(colour(100, false));
    expect(colour(-5, true)).toBe(colour(0, true));
  });

  it("has readable ink", () => {
    expect(inkOn(colour(0, false))).toBe("#0c161d");
    expect(inkOn(colour(85, false))).toBe("#ffffff");
  });
});
