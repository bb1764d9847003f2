import { type JSX, render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, type Counts, get, type Place, post, type Session } from "./api";
import { full } from "./format";
import { connect, useConnected, useLive } from "./live";
import { Problem } from "./parts";
import { go, Link, useLocation, visit, why } from "./router";
import { Fleet } from "./screens/fleet";
import { Nodes } from "./screens/nodes";
import { Overview } from "./screens/overview";
import { PolicyScreen } from "./screens/policy";
import { Promises } from "./screens/promises";
import { Timeline } from "./screens/timeline";
import { Units } from "./screens/units";
import { Waiting } from "./screens/waiting";
import { WhatIf } from "./screens/what-if";
import { Why, WhyChooser } from "./screens/why";
import "./style.css";
import { applyTheme, followSystem, toggleTheme, useTheme } from "./theme";

const SCREENS: [path: string, title: string, key: string, system: string][] = [
  ["/", "Overview", "o", ""],
  ["/waiting", "Waiting", "w", ""],
  ["/why", "Why", "y", ""],
  ["/what-if", "What if", "i", ""],
  ["/nodes", "Nodes", "n", ""],
  ["/promises", "Promises", "p", ""],
  ["/units", "Units", "u", "units"],
  ["/fleet", "Fleet", "f", "fleet"],
  ["/policy", "Policy", "l", "policy"],
  ["/timeline", "Timeline", "t", ""],
];

function screen(path: string): JSX.Element {
  const [, first = "", namespace = "", name = ""] = path.split("/").map(decodeURIComponent);
  switch (first) {
    case "":
      return <Overview />;
    case "waiting":
      return <Waiting />;
    case "why":
      return name ? <Why key={path} namespace={namespace} name={name} /> : <WhyChooser />;
    case "what-if":
      return <WhatIf key={visit()} />;
    case "nodes":
      return <Nodes />;
    case "promises":
      return <Promises />;
    case "units":
      return <Units />;
    case "fleet":
      return <Fleet />;
    case "policy":
      return <PolicyScreen />;
    case "timeline":
      return <Timeline />;
    default:
      return <Problem error={new Error("There is no such page.")} />;
  }
}

function App(): JSX.Element {
  const { path, query } = useLocation();
  const [session, setSession] = useState<Session | null>(null);
  const [refused, setRefused] = useState(false);
  useEffect(() => {
    if (path === "/login") {
      setRefused(true);
      return;
    }
    get<Session>("/api/session").then(
      (found) => {
        setSession(found);
        connect();
      },
      (error: ApiError) => {
        if (error.status === 401) setRefused(true);
      },
    );
  }, []);
  if (refused) return <Login used={query.has("used")} />;
  return <Frame session={session} path={path} />;
}

function Frame(props: { session: Session | null; path: string }): JSX.Element {
  const { session, path } = props;
  const [dialog, setDialog] = useState<"" | "search" | "keys">("");
  const connected = useConnected();
  const main = useRef<HTMLElement>(null);
  const waiting = useLive<Counts>(session ? "/api/counts" : null, ["pods"]).value?.waiting ?? 0;
  useKeys(setDialog);
  const current = SCREENS.find(([each]) => (each === "/" ? path === "/" : path.startsWith(each)));
  useEffect(() => {
    document.title = `${current?.[1] ?? "Page"} · Wharfinger`;
    // Where the screens are one scrolling row, the present one is in sight.
    document.querySelector(".nav a[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [path, waiting > 0]);
  return (
    <div class="frame">
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <nav class="side" aria-label="Screens">
        <div class="brandrow">
          <Link to="/" class="brand">
            <img src="/favicon.svg" alt="" />
            Wharfinger
          </Link>
          <span class="row only-small">
            <button aria-label="Search" onClick={() => setDialog("search")}>
              Search
            </button>
            <Theme />
          </span>
        </div>
        <ul class="nav">
          {SCREENS.filter(([, , , system]) => !system || !session || session.screens.includes(system)).map(([to, title]) => (
            <li key={to}>
              <Link to={to} current={current?.[0] === to}>
                {title}
                {to === "/waiting" && waiting > 0 && <span class="count">{waiting.toLocaleString("en")}</span>}
              </Link>
            </li>
          ))}
        </ul>
        <div class="foot">
          <button onClick={() => setDialog("search")}>
            Search <kbd>/</kbd>
          </button>
          <button class="link" style={{ textAlign: "left" }} onClick={() => setDialog("keys")}>
            Keys <kbd>?</kbd>
          </button>
          <Theme />
          {session && (
            <>
              <span>{session.user}</span>
              <span>{session.server.replace(/^https?:\/\//, "")}</span>
              {session.notRead.length > 0 && <span title={session.notRead.join("\n")}>{session.notRead.length} kinds may not be read</span>}
              <button
                class="link"
                style={{ textAlign: "left" }}
                onClick={() => void post("/logout", {}).then(() => location.assign("/login"))}
              >
                Log out
              </button>
            </>
          )}
        </div>
      </nav>
      <main class="main" id="main" ref={main} tabIndex={-1}>
        {screen(path)}
      </main>
      {!connected && (
        <div class="toast" role="status">
          Not connected; trying again …
        </div>
      )}
      {dialog === "search" && <Search close={() => setDialog("")} />}
      {dialog === "keys" && <Keys close={() => setDialog("")} />}
    </div>
  );
}

function Theme(): JSX.Element {
  const theme = useTheme();
  return <button onClick={toggleTheme}>{theme === "dark" ? "Light" : "Dark"}</button>;
}

/** `/` searches, `?` lists keys, `g` and a letter changes the screen; not while one types. */
function useKeys(open: (dialog: "search" | "keys") => void): void {
  useEffect(() => {
    let leader = 0;
    const key = (event: KeyboardEvent): void => {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) return;
      if (event.key === "/") {
        event.preventDefault();
        open("search");
      } else if (event.key === "?") open("keys");
      else if (event.key === "g") leader = Date.now();
      else if (Date.now() - leader < 1500) {
        const found = SCREENS.find(([, , letter]) => letter === event.key);
        if (found) go(found[0]);
        leader = 0;
      }
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, []);
}

function Dialog(props: { label: string; close: () => void; children: JSX.Element | JSX.Element[] }): JSX.Element {
  const box = useRef<HTMLDialogElement>(null);
  useEffect(() => box.current?.showModal(), []);
  return (
    <dialog ref={box} aria-label={props.label} onClose={props.close} onClick={(event) => event.target === box.current && props.close()}>
      {props.children}
    </dialog>
  );
}

function Search(props: { close: () => void }): JSX.Element {
  const [text, setText] = useState("");
  const [pods, setPods] = useState<Place[]>([]);
  const [nodes, setNodes] = useState<string[]>([]);
  const [chosen, setChosen] = useState(0);
  useEffect(() => void get<{ names: string[] }>("/api/nodes").then((found) => setNodes(found.names), () => undefined), []);
  useEffect(() => {
    const timer = setTimeout(() => void get<{ pods: Place[] }>(`/api/pods?search=${encodeURIComponent(text)}`).then((found) => setPods(found.pods), () => undefined), 120);
    return () => clearTimeout(timer);
  }, [text]);
  const wanted = text.toLowerCase();
  const hits: [string, string, string][] = [
    ...SCREENS.filter(([, title]) => wanted && title.toLowerCase().includes(wanted)).map(([to, title]): [string, string, string] => [title, "screen", to]),
    ...nodes.filter((name) => wanted && name.toLowerCase().includes(wanted)).slice(0, 8).map((name): [string, string, string] => [name, "node", `/nodes?node=${encodeURIComponent(name)}`]),
    // The answer may still be that to an earlier text.
    ...pods.filter((pod) => full(pod).toLowerCase().includes(wanted)).slice(0, 12).map((pod): [string, string, string] => [full(pod), "pod", why(pod)]),
  ];
  const open = (to: string): void => {
    props.close();
    go(to);
  };
  return (
    <Dialog label="Search" close={props.close}>
      <input
        type="search"
        autofocus
        placeholder="Pod, node or screen"
        aria-label="Search pods, nodes and screens"
        style={{ width: "min(480px, 80vw)" }}
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setChosen(0);
        }}
        onKeyDown={(event) => {
          if (event.key === "ArrowDown") setChosen(Math.min(hits.length - 1, chosen + 1));
          else if (event.key === "ArrowUp") setChosen(Math.max(0, chosen - 1));
          else if (event.key === "Enter" && hits[chosen]) open(hits[chosen]![2]);
          else return;
          event.preventDefault();
        }}
      />
      <ul class="hits">
        {hits.map(([title, kind, to], index) => (
          <li key={kind + title}>
            <a
              href={to}
              aria-selected={index === chosen}
              onClick={(event) => {
                event.preventDefault();
                open(to);
              }}
            >
              {title} <span class="quiet small">{kind}</span>
            </a>
          </li>
        ))}
      </ul>
    </Dialog>
  );
}

function Keys(props: { close: () => void }): JSX.Element {
  return (
    <Dialog label="Keys" close={props.close}>
      <h2>Keys</h2>
      <div class="keys" style={{ marginTop: "12px" }}>
        <span>
          <kbd>/</kbd>
        </span>
        <span>search</span>
        <span>
          <kbd>?</kbd>
        </span>
        <span>this list</span>
        {SCREENS.map(([to, title, letter]) => (
          <>
            <span key={to}>
              <kbd>g</kbd> <kbd>{letter}</kbd>
            </span>
            <span>{title}</span>
          </>
        ))}
      </div>
    </Dialog>
  );
}

function Login(props: { used: boolean }): JSX.Element {
  const [token, setToken] = useState("");
  const [error, setError] = useState<Error | null>(null);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    try {
      await post("/login", { token });
      location.assign("/");
    } catch (problem) {
      setError(problem as Error);
    }
  };
  return (
    <main class="login card">
      <h1>Wharfinger</h1>
      {props.used && <p>This link was used already or has expired.</p>}
      <p>
        Open a new link: <code>wharf status</code> shows the one of <code>wharf up</code>, and <code>wharf dashboard</code> prints one when it starts. Or log in
        with a bearer token of the cluster:
      </p>
      <form class="stack" onSubmit={(event) => void submit(event)}>
        <label class="field">
          bearer token
          <input type="password" autocomplete="off" value={token} onInput={(event) => setToken(event.currentTarget.value)} />
        </label>
        <button class="main-action" disabled={!token}>
          Log in
        </button>
      </form>
      {error && <Problem error={error} />}
    </main>
  );
}

applyTheme();
followSystem();
render(<App />, document.getElementById("app")!);
