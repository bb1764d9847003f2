// Where the cursor is in YAML: the object's kind and the path of the mapping that a new key would go into.

export interface At {
  apiVersion: string;
  kind: string;
  path: string; // such as spec.template.spec.containers
  word: string; // what was typed of the key so far
  start: number; // where that word begins in the text
  isValue: boolean; // behind a colon
}

export function locate(text: string, cursor: number): At {
  const before = text.slice(0, cursor);
  const from = Math.max(0, before.lastIndexOf("\n---") + 1);
  const end = text.indexOf("\n---", cursor);
  const document = text.slice(from, end < 0 ? undefined : end);
  const lines = before.slice(from).split("\n");
  const line = lines.pop() ?? "";
  const typed = /^(\s*(?:- )*)(.*)$/.exec(line)!;
  const word = typed[2]!;
  let indent = typed[1]!.length;
  const path: string[] = [];
  for (let index = lines.length - 1; index >= 0 && indent > 0; index -= 1) {
    const found = /^(\s*(?:- )*)([\w.\-/"']+):\s*(.*)$/.exec(lines[index]!);
    if (!found) continue;
    const depth = found[1]!.length;
    const dashes = found[1]!.includes("- ");
    if (depth < indent && !found[3]) {
      path.unshift(found[2]!.replaceAll(/["']/g, ""));
      indent = dashes ? found[1]!.indexOf("-") : depth;
      if (dashes) indent += 1;
    } else if (dashes && found[1]!.indexOf("-") < indent && depth <= indent) {
      indent = Math.min(indent, found[1]!.indexOf("-") + 1);
    }
  }
  const field = (name: string): string => new RegExp(`^${name}:\\s*["']?([\\w./-]+)`, "m").exec(document)?.[1] ?? "";
  return {
    apiVersion: field("apiVersion"),
    kind: field("kind"),
    path: path.join("."),
    word,
    start: cursor - word.length,
    isValue: word.includes(":"),
  };
}
