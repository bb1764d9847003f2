import { describe, expect, it } from "vitest";
import { decode, encode, isEmpty, NOTHING, scenario } from "../src/change";

describe("a change in an address", () => {
  it("comes back as it was, whatever the letters", () => {
    const change = { ...NOTHING, yaml: "metadata: {name: größe}\n", drains: ["node-1"], nodes: [{ like: "node-2", count: 3 }] };
    expect(decode(encode(change))).toEqual(change);
    expect(encode(change)).toMatch(/^[\w-]+$/);
  });

  it("is nothing where somebody cut it off", () => {
    expect(isEmpty(decode("eyJ5YW"))).toBe(true);
    expect(encode(NOTHING)).toBe("");
  });
});

describe("a scenario", () => {
  it("has a step for manifests, scaling and deletions", () => {
    const text = scenario({
      ...NOTHING,
      yaml: "kind: Pod\nspec:\n  x: 1\n---\nkind: Node\n",
      scale: [{ kind: "Deployment", namespace: "shop", name: "web", replicas: 5 }],
      deletions: ["pod/shop/old", "node/n1"],
      drains: ["n2"],
    });
    expect(text).toContain("- apply:\n  - kind: Pod\n    spec:\n      x: 1\n  - kind: Node\n");
    expect(text).toContain("merge: {spec: {replicas: 5}}");
    expect(text).toContain("- delete: {kind: pod, namespace: shop, name: old}");
    expect(text).toContain("- delete: {kind: node, name: n1}");
    expect(text).toContain("# wharf plan --drain n2");
  });
});
