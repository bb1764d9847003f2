// A change as the what-if screen edits it, in an address and as a Scenario.

import type { WhatIf } from "./api";

export const NOTHING: WhatIf = { yaml: "", scale: [], nodes: [], deletions: [], drains: [] };

export function isEmpty(change: WhatIf): boolean {
  return !(change.yaml.trim() || change.scale.length || change.nodes.length || change.deletions.length || change.drains.length);
}

/** Text for an address; empty for no change. */
export function encode(change: WhatIf): string {
  if (isEmpty(change)) return "";
  const parts = Object.fromEntries(Object.entries(change).filter(([, value]) => value.length));
  const data = new TextEncoder().encode(JSON.stringify(parts));
  let text = "";
  for (const each of data) text += String.fromCharCode(each);
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

export function decode(text: string): WhatIf {
  if (!text) return NOTHING;
  try {
    const raw = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
    const data = Uint8Array.from(raw, (each) => each.charCodeAt(0));
    return { ...NOTHING, ...(JSON.parse(new TextDecoder().decode(data)) as Partial<WhatIf>) };
  } catch {
    return NOTHING; // an address that somebody cut off
  }
}

/** The change as a Scenario for `wharf simulate`. What scenarios have no step for is noted as a comment. */
export function scenario(change: WhatIf, name = "what-if"): string {
  const lines = ["apiVersion: wharfinger.dev/v1alpha1", "kind: Scenario", `metadata: {name: ${name}}`, "steps:"];
  const documents = change.yaml.split(/^---\s*$/m).filter((each) => each.trim());
  if (documents.length) {
    lines.push("- apply:");
    for (const document of documents) {
      const inner = document.replace(/\s+$/, "").replace(/^\n+/, "").split("\n");
      inner.forEach((line, index) => lines.push(index ? `    ${line}` : `  - ${line}`));
    }
  }
  for (const each of change.scale) {
    lines.push(`- patch: {kind: ${each.kind}, namespace: ${each.namespace}, name: ${each.name}}`);
    lines.push(`  merge: {spec: {replicas: ${each.replicas}}}`);
  }
  for (const each of change.deletions) {
    const words = each.split("/");
    const place = words.length > 2 ? `namespace: ${words[1]}, name: ${words[2]}` : `name: ${words[1]}`;
    lines.push(`- delete: {kind: ${words[0]}, ${place}}`);
  }
  for (const node of change.drains) lines.push(`# wharf plan --drain ${node}`);
  for (const each of change.nodes) lines.push(`# ${each.count} more nodes like ${each.like}`);
  return `${lines.join("\n")}\n`;
}
