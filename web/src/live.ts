// Live answers: a screen's data is asked for again when the server says that a kind it depends on has changed.

import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, get } from "./api";

type Listener = (kinds: string[]) => void;

const listeners = new Set<Listener>();
const connectionListeners = new Set<(connected: boolean) => void>();
let source: EventSource | null = null;
let connected = true;

export function connect(): void {
  if (source) return;
  source = new EventSource("/api/changes");
  source.addEventListener("changed", (event) => {
    const kinds = JSON.parse((event as MessageEvent<string>).data) as string[];
    for (const each of listeners) each(kinds);
  });
  source.addEventListener("hello", () => {
    if (!connected) for (const each of listeners) each([]); // whatever changed meanwhile
    tell(true);
  });
  source.addEventListener("error", () => tell(false));
}

function tell(now: boolean): void {
  if (connected === now) return;
  connected = now;
  for (const each of connectionListeners) each(now);
}

export function useConnected(): boolean {
  const [now, set] = useState(connected);
  useEffect(() => {
    connectionListeners.add(set);
    return () => void connectionListeners.delete(set);
  }, []);
  return now;
}

export interface Live<T> {
  value: T | undefined;
  error: ApiError | undefined;
}

const PAUSE = 100; // milliseconds between two requests of one screen, however much changes

/** `kinds`: those whose changes matter, if not all. `every`: milliseconds after which it is asked for again in any case. */
export function useLive<T>(path: string | null, kinds?: string[], every?: number): Live<T> {
  const [state, set] = useState<Live<T> & { path: string | null }>({ value: undefined, error: undefined, path });
  const wanted = useRef(kinds);
  wanted.current = kinds;
  useEffect(() => {
    if (path === null) return;
    let stopped = false;
    let busy = false;
    let again = false;
    const load = async (): Promise<void> => {
      if (busy) {
        again = true;
        return;
      }
      busy = true;
      try {
        const value = await get<T>(path);
        if (!stopped) set({ value, error: undefined, path });
      } catch (problem) {
        const error = problem instanceof ApiError ? problem : new ApiError(0, "the dashboard does not answer");
        if (!stopped) set((before) => ({ value: before.path === path ? before.value : undefined, error, path }));
        if (error.status === 503 && !stopped) setTimeout(() => void load(), 1000);
      }
      setTimeout(() => {
        busy = false;
        if (again && !stopped) {
          again = false;
          void load();
        }
      }, PAUSE);
    };
    void load();
    const listener: Listener = (changed) => {
      const mine = wanted.current;
      if (!mine || !changed.length || changed.some((kind) => mine.includes(kind))) void load();
    };
    listeners.add(listener);
    const timer = every ? setInterval(() => void load(), every) : 0;
    return () => {
      stopped = true;
      clearInterval(timer);
      listeners.delete(listener);
    };
  }, [path]);
  return state.path === path ? state : { value: undefined, error: undefined };
}
