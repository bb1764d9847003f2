// Deep links: the path is the screen, the query its state.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

const listeners = new Set<() => void>();
let visits = 0;

/** Changes whenever somebody goes to a page, and not when a page notes its own state in the address. */
export const visit = (): number => visits;

export function go(to: string, replace = false): void {
  if (to === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", to);
  if (!replace) visits += 1;
  for (const each of listeners) each();
}

export function useLocation(): { path: string; query: URLSearchParams } {
  const [at, set] = useState(location.pathname + location.search);
  useEffect(() => {
    const changed = (): void => set(location.pathname + location.search);
    const back = (): void => {
      visits += 1;
      changed();
    };
    listeners.add(changed);
    addEventListener("popstate", back);
    return () => {
      listeners.delete(changed);
      removeEventListener("popstate", back);
    };
  }, []);
  const url = new URL(at, location.origin);
  return { path: url.pathname, query: url.searchParams };
}

export function setQuery(changes: Record<string, string>): void {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  const text = query.toString();
  go(location.pathname + (text ? `?${text}` : ""), true);
}

export function Link(props: { to: string; children: ComponentChildren; class?: string; current?: boolean; label?: string }): JSX.Element {
  const click = (event: MouseEvent): void => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    go(props.to);
    scrollTo(0, 0);
  };
  return (
    <a href={props.to} class={props.class} onClick={click} aria-current={props.current ? "page" : undefined} aria-label={props.label}>
      {props.children}
    </a>
  );
}

export const why = (place: { namespace: string; name: string }): string =>
  `/why/${encodeURIComponent(place.namespace)}/${encodeURIComponent(place.name)}`;
