// An editor for manifests: line numbers, faults as one types, and completion from the server's schemas.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { get, post } from "./api";
import { locate } from "./yaml-path";

interface Field {
  name: string;
  type: string;
  required: boolean;
  values: string[];
}

interface Fault {
  line: number;
  message: string;
}

interface Choice {
  text: string;
  note: string;
  insert: string;
}

const LINE = 20; // pixels

export function Editor(props: { value: string; onChange: (value: string) => void; label: string }): JSX.Element {
  const area = useRef<HTMLTextAreaElement>(null);
  const gutter = useRef<HTMLDivElement>(null);
  const [faults, setFaults] = useState<Fault[]>([]);
  const [choices, setChoices] = useState<Choice[]>([]);
  const [chosen, setChosen] = useState(0);
  const [at, setAt] = useState({ x: 0, y: 0 });

  useEffect(() => {
    if (!props.value.trim()) {
      setFaults([]);
      return;
    }
    const timer = setTimeout(() => {
      void post<{ faults: Fault[] }>("/api/check", { yaml: props.value }).then(
        (found) => setFaults(found.faults),
        () => setFaults([]),
      );
    }, 350);
    return () => clearTimeout(timer);
  }, [props.value]);

  const complete = async (): Promise<void> => {
    const element = area.current;
    if (!element) return;
    const text = element.value;
    const cursor = element.selectionStart;
    const place = locate(text, cursor);
    const query = new URLSearchParams({ apiVersion: place.apiVersion, kind: place.kind, path: place.path });
    const found = await get<{ fields: Field[]; kinds?: string[] }>(`/api/fields?${query.toString()}`).catch(() => ({ fields: [] as Field[], kinds: undefined }));
    let made: Choice[] = [];
    if (found.kinds && !place.isValue) {
      made = found.kinds
        .filter((each) => each.toLowerCase().includes(place.word.toLowerCase()))
        .map((each) => {
          const [version, kind] = each.split(" ");
          return { text: kind ?? each, note: version ?? "", insert: `apiVersion: ${version}\nkind: ${kind}\nmetadata:\n  name: ` };
        });
    } else if (!place.isValue) {
      made = found.fields
        .filter((field) => field.name.toLowerCase().startsWith(place.word.toLowerCase()))
        .map((field) => ({
          text: field.name,
          note: field.required ? `${field.type}, required` : field.type,
          insert: `${field.name}:${["object", "list", "map"].includes(field.type) ? "" : " "}`,
        }));
    }
    const lines = text.slice(0, cursor).split("\n");
    setAt({ x: 54 + Math.min(60, lines[lines.length - 1]!.length) * 7.8, y: Math.min(element.clientHeight - 40, lines.length * LINE + 12 - element.scrollTop) });
    setChoices(made.slice(0, 60));
    setChosen(0);
  };

  const accept = (choice: Choice): void => {
    const element = area.current;
    if (!element) return;
    const place = locate(element.value, element.selectionStart);
    element.setRangeText(choice.insert, place.start, element.selectionStart, "end");
    props.onChange(element.value);
    setChoices([]);
    element.focus();
  };

  const key = (event: KeyboardEvent): void => {
    const element = area.current!;
    if (choices.length) {
      const moves: Record<string, number> = { ArrowDown: 1, ArrowUp: -1 };
      const move = moves[event.key];
      if (move) {
        event.preventDefault();
        setChosen((chosen + move + choices.length) % choices.length);
        return;
      }
      if (event.key === "Enter" || event.key === "Tab") {
        event.preventDefault();
        accept(choices[chosen]!);
        return;
      }
      if (event.key === "Escape") {
        event.preventDefault();
        setChoices([]);
        return;
      }
    }
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      void complete();
    } else if (event.key === "Enter") {
      // The next line starts at the depth of this one, deeper behind a colon.
      const before = element.value.slice(0, element.selectionStart);
      const line = before.slice(before.lastIndexOf("\n") + 1);
      const depth = /^\s*/.exec(line)![0] + (/^\s*- /.test(line) || line.trimEnd().endsWith(":") ? "  " : "");
      if (depth) {
        event.preventDefault();
        element.setRangeText(`\n${depth}`, element.selectionStart, element.selectionEnd, "end");
        props.onChange(element.value);
      }
    }
  };

  const lines = props.value.split("\n").length;
  const wrong = new Map(faults.map((fault) => [fault.line, fault.message]));
  const height = Math.max(300, Math.min(560, lines * LINE + 40));
  return (
    <div class="stack">
      <div class="editor">
        <div class="gutter" ref={gutter} aria-hidden="true" style={{ height: `${height}px` }}>
          {Array.from({ length: lines }, (_, index) => (
            <span key={index} class={wrong.has(index + 1) ? "wrong" : ""}>
              {wrong.has(index + 1) ? "●" : ""} {index + 1}
            </span>
          ))}
        </div>
        <textarea
          ref={area}
          aria-label={props.label}
          spellcheck={false}
          autocapitalize="off"
          style={{ height: `${height}px` }}
          value={props.value}
          onInput={(event) => {
            props.onChange(event.currentTarget.value);
            if (choices.length) void complete();
          }}
          onKeyDown={key}
          onBlur={() => setTimeout(() => setChoices([]), 150)}
          onScroll={(event) => {
            if (gutter.current) gutter.current.scrollTop = event.currentTarget.scrollTop;
          }}
        />
        {choices.length > 0 && (
          <ul class="complete" role="listbox" aria-label="Fields" style={{ left: `${at.x}px`, top: `${at.y}px` }}>
            {choices.map((choice, index) => (
              <li key={choice.text + choice.note} role="option" aria-selected={index === chosen} onMouseDown={() => accept(choice)}>
                {choice.text} <span class="quiet">{choice.note}</span>
              </li>
            ))}
          </ul>
        )}
      </div>
      <div class="row small">
        <span class="quiet">
          <kbd>Ctrl</kbd> <kbd>Space</kbd> completes fields
        </span>
        <button class="link" onClick={() => void complete()}>
          complete
        </button>
      </div>
      {faults.length > 0 && (
        <div class="problem" role="status">
          {faults.map((fault) => `${fault.line ? `line ${fault.line}: ` : ""}${fault.message}`).join("\n")}
        </div>
      )}
    </div>
  );
}
