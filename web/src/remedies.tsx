// What would help a waiting pod: the smallest changes, each verified by the server.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { type ApiError, get, type Place, type WhatIf } from "./api";
import { encode, NOTHING } from "./change";
import { full } from "./format";
import { Link } from "./router";

interface Remedy {
  text: string;
  node: string;
  change: Partial<WhatIf> | null;
}

const SHOWN = 3;

export function Remedies(props: { pod: Place; most?: number }): JSX.Element | null {
  const [remedies, setRemedies] = useState<Remedy[] | null>(null);
  const [error, setError] = useState("");
  const name = full(props.pod);
  useEffect(() => {
    let stale = false;
    get<{ remedies: Remedy[] }>(`/api/remedies/${encodeURIComponent(props.pod.namespace)}/${encodeURIComponent(props.pod.name)}`).then(
      (found) => !stale && setRemedies(found.remedies),
      (problem: ApiError) => !stale && setError(problem.message),
    );
    return () => {
      stale = true;
    };
  }, [name]);
  if (error) return null; // who may not see everything gets no advice
  if (!remedies) return <span class="small quiet">Looking for the smallest change …</span>;
  if (!remedies.length) return <span class="small quiet">No small change was found that lets it in.</span>;
  return (
    <ul class="remedies small" aria-label={`What would help ${name}`}>
      {remedies.slice(0, props.most ?? SHOWN).map((remedy) => (
        <li key={remedy.text}>
          <span class="wrap">
            {remedy.text} <span class="quiet">→ {remedy.node}</span>
          </span>{" "}
          {remedy.change && (
            <Link to={`/what-if?pod=${encodeURIComponent(name)}&change=${encode({ ...NOTHING, ...remedy.change })}`} label={`Try it: ${remedy.text}`}>
              Try it
            </Link>
          )}
        </li>
      ))}
    </ul>
  );
}
