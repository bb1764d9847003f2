// Dark or light: as the system says, unless a person chose.

import { useEffect, useState } from "preact/hooks";

const KEY = "wharf-theme";
const listeners = new Set<(theme: string) => void>();

const system = (): MediaQueryList => matchMedia("(prefers-color-scheme: dark)");

export function theme(): string {
  return localStorage.getItem(KEY) ?? (system().matches ? "dark" : "light");
}

export function isDark(): boolean {
  return document.documentElement.dataset.theme === "dark";
}

export function applyTheme(): void {
  document.documentElement.dataset.theme = theme();
  for (const each of listeners) each(theme());
}

export function toggleTheme(): void {
  localStorage.setItem(KEY, isDark() ? "light" : "dark");
  applyTheme();
}

export function useTheme(): string {
  const [now, set] = useState(theme());
  useEffect(() => {
    listeners.add(set);
    return () => void listeners.delete(set);
  }, []);
  return now;
}

export function followSystem(): void {
  system().addEventListener("change", applyTheme);
}
