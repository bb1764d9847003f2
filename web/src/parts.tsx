// Small parts that several screens share.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { ApiError, Verdict } from "./api";

export function Card(props: {
  title: ComponentChildren;
  note?: ComponentChildren;
  span?: number;
  action?: ComponentChildren;
  bare?: boolean;
  children: ComponentChildren;
}): JSX.Element {
  return (
    <section class={`card s${props.span ?? 12}`}>
      <header>
        <h2>{props.title}</h2>
        {props.note && <span class="quiet">{props.note}</span>}
        <span class="spacer" />
        {props.action}
      </header>
      {props.bare ? props.children : <div class="body">{props.children}</div>}
    </section>
  );
}

export function Head(props: { title: ComponentChildren; note?: ComponentChildren; children?: ComponentChildren }): JSX.Element {
  return (
    <div class="head">
      <h1 tabIndex={-1}>{props.title}</h1>
      <span class="spacer" />
      {props.children}
      {props.note && <p>{props.note}</p>}
    </div>
  );
}

const VERDICTS: Record<Verdict, [string, string]> = {
  never: ["never", "bad"],
  waiting: ["waiting", "warn"],
  now: ["can start", "good"],
  held: ["held back", "note"],
  elsewhere: ["other scheduler", "note"],
  unjudged: ["being judged", ""],
};

export function VerdictBadge(props: { verdict: Verdict }): JSX.Element {
  const [text, tone] = VERDICTS[props.verdict] ?? [props.verdict, ""];
  return <span class={`badge ${tone}`}>{text}</span>;
}

/** `alarm`: whether a full bar is bad news. */
export function Bar(props: { used: number | null; second?: number; label: string; tall?: boolean; alarm?: boolean }): JSX.Element {
  const used = Math.max(0, Math.min(100, props.used ?? 0));
  const second = Math.max(0, Math.min(100 - used, props.second ?? 0));
  return (
    <div class={props.tall ? "bar tall" : "bar"} role="img" aria-label={props.label} title={props.label}>
      {used > 0 && <i class={used >= 100 && props.alarm ? "full" : ""} style={{ width: `${used}%`, minWidth: "1px" }} />}
      {second > 0 && <i class="second" style={{ width: `${second}%` }} />}
    </div>
  );
}

export function Empty(props: { title: string; children?: ComponentChildren }): JSX.Element {
  return (
    <div class="empty">
      <b>{props.title}</b>
      {props.children}
    </div>
  );
}

export function Problem(props: { error: ApiError | Error }): JSX.Element {
  return (
    <div class="problem" role="alert">
      {props.error.message}
    </div>
  );
}

export function Loading(): JSX.Element {
  return (
    <div class="empty" role="status">
      Loading …
    </div>
  );
}

/** What a live answer shows while there is none, and when it failed. */
export function Shown<T>(props: {
  live: { value: T | undefined; error: ApiError | undefined };
  children: (value: T) => ComponentChildren;
}): JSX.Element {
  const { value, error } = props.live;
  return (
    <>
      {error && <Problem error={error} />}
      {value !== undefined ? props.children(value) : !error && <Loading />}
    </>
  );
}

export interface Column<T> {
  title: string;
  cell: (row: T) => ComponentChildren;
  number?: boolean;
  short?: boolean;
  lead?: boolean;
}

/** A table that shows many rows in steps, and as cards on small screens. */
export function Table<T>(props: { label: string; rows: T[]; columns: Column<T>[]; step?: number; keyOf: (row: T) => string }): JSX.Element {
  const step = props.step ?? 100;
  const [most, setMost] = useState(step);
  const kind = (column: Column<T>): string =>
    [column.number ? "number" : "", column.short ? "short" : "", column.lead ? "lead" : ""].join(" ").trim();
  return (
    <>
      <div class="scroll" role="region" aria-label={props.label} tabIndex={0}>
        <table class="cards">
          <caption class="visually-hidden">{props.label}</caption>
          <thead>
            <tr>
              {props.columns.map((column) => (
                <th key={column.title} class={column.number ? "number" : ""} scope="col">
                  {column.title}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {props.rows.slice(0, most).map((row) => (
              <tr key={props.keyOf(row)}>
                {props.columns.map((column) => (
                  <td key={column.title} class={kind(column)} data-label={column.title}>
                    {column.cell(row)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {props.rows.length > most && (
        <div class="empty">
          <button onClick={() => setMost(most + step * 5)}>
            Show more ({(props.rows.length - most).toLocaleString("en")} left)
          </button>
        </div>
      )}
    </>
  );
}

/** Chooses a name. Where `names` are not all of them, one is typed, and `onSearch` is told what was typed so far. */
export function NamePicker(props: {
  label: string;
  value: string;
  names: string[];
  complete: boolean;
  empty?: string;
  onChoose: (name: string) => void;
  onSearch?: (text: string) => void;
}): JSX.Element {
  const [text, setText] = useState(props.value);
  useEffect(() => setText(props.value), [props.value]);
  const id = `names-${props.label}`;
  const typed = (now: string): void => {
    setText(now);
    props.onSearch?.(now);
    if (props.names.includes(now)) props.onChoose(now);
  };
  return (
    <label class="field">
      {props.label}
      {props.complete ? (
        <select value={props.value} onChange={(event) => props.onChoose(event.currentTarget.value)}>
          {(props.empty || !props.names.length) && <option value="">{props.empty ?? "none"}</option>}
          {props.names.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      ) : (
        <>
          <input list={id} value={text} placeholder="type a name" onInput={(event) => typed(event.currentTarget.value.trim())} onChange={(event) => props.onChoose(event.currentTarget.value.trim())} />
          <datalist id={id}>
            {props.names.map((name) => (
              <option key={name} value={name} />
            ))}
          </datalist>
        </>
      )}
    </label>
  );
}

export function Switch<T extends string>(props: {
  label: string;
  value: T;
  options: [T, string][];
  onChange: (value: T) => void;
}): JSX.Element {
  return (
    <div class="switch" role="group" aria-label={props.label}>
      {props.options.map(([value, text]) => (
        <button key={value} aria-pressed={value === props.value} onClick={() => props.onChange(value)}>
          {text}
        </button>
      ))}
    </div>
  );
}
