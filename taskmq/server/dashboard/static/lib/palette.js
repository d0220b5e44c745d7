// @ts-check
/** Finds pages, views, tasks, queues, schedules, workflows, runs, jobs and actions by parts of their names. */
import { may, read } from "./api.js";
import { Bulk } from "./bulk.js";
import { HoldRun, PauseQueue, resumeQueue } from "./changes.js";
import { html, useEffect, useState } from "./html.js";
import { refresh } from "./live.js";
import { PAGES } from "./pages.js";
import { Dialog, notify } from "./parts.js";
import { to } from "./route.js";
import { FAILED } from "./summary.js";
import { THEMES } from "./theme.js";
import { views } from "./views.js";

/**
 * An entry either acts, or opens a dialog in place of the palette.
 * @typedef {{kind: string, name: string, act?: () => void, dialog?: (close: () => void) => unknown}} Entry
 */

const MOST = 12;
/** @type {[string, string, string, string][]} sources: permission, API path, name field, page */
const NAMED = [["tasks.read", "tasks", "name", "tasks"], ["queues.read", "queues", "queue", "queues"], ["schedules.read", "schedules", "name", "schedules"], ["definitions.read", "workflows", "name", "workflows"], ["workflows.read", "runs", "run_id", "runs"]];
const NOUNS = /** @type {Record<string, string>} */ ({ tasks: "Task", queues: "Queue", schedules: "Schedule", workflows: "Workflow", runs: "Run" });

/** @param {string} hash */
const goTo = (hash) => () => { location.hash = hash; };

/** @type {Entry} */
const RETRY = { kind: "Action", name: "Retry failed jobs …", dialog: (close) => html`<${Bulk} filter=${FAILED} what="" close=${close} reload=${refresh} />` };

/** Return the actions on what the API listed at a path.
 * @param {string} path @param {any} answer @returns {Entry[]} */
function actionsOn(path, answer) {
  if (path === "queues" && may("queues.operate")) {
    return answer.queues.filter((/** @type {any} */ one) => one.is_paused !== null).map((/** @type {any} */ one) => one.is_paused
      ? { kind: "Action", name: `Resume queue ${one.queue}`, act: () => resumeQueue(one.queue).then(refresh, (error) => notify(error.message, true)) }
      : { kind: "Action", name: `Pause queue ${one.queue} …`, dialog: (/** @type {() => void} */ close) => html`<${PauseQueue} name=${one.queue} close=${close} reload=${refresh} />` });
  }
  if (path === "runs" && may("workflows.operate")) {
    return answer.items.filter((/** @type {any} */ one) => one.state === "running" && one.held === null && one.cancelled === null).map((/** @type {any} */ one) => (
      { kind: "Action", name: `Hold run ${one.workflow} ${one.run_id} …`, dialog: (/** @type {() => void} */ close) => html`<${HoldRun} run=${one} close=${close} reload=${refresh} />` }));
  }
  return [];
}

/** Return entries that contain every word of the text; entries that start with it come first.
 * @param {Entry[]} entries @param {string} text @returns {Entry[]} */
export function match(entries, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = entries.filter((one) => words.every((word) => `${one.kind} ${one.name}`.toLowerCase().includes(word)));
  const rank = (/** @type {Entry} */ one) => (one.name.toLowerCase().startsWith(words[0] ?? "") ? 0 : 1);
  return fits.map((one, at) => ({ one, at })).sort((a, b) => rank(a.one) - rank(b.one) || a.at - b.at).slice(0, MOST).map(({ one }) => one);
}

/** @param {{close: () => void, actions: Entry[], setTheme: (theme: string) => void}} props */
export function Palette({ close, actions, setTheme }) {
  const [text, set] = useState("");
  const [at, move] = useState(0);
  const [named, add] = useState(/** @type {Entry[]} */ ([]));
  const [isRead, setRead] = useState(false);
  const [opened, open] = useState(/** @type {Entry | null} */ (null));
  useEffect(() => {
    let isGone = false;
    const reading = NAMED.filter(([permission]) => may(permission)).map(([, path, name, page]) => read(path, path === "queues" ? { max_age: 3 } : {}).then((answer) => {
      if (!isGone) add((/** @type {Entry[]} */ before) => [...before, ...(answer.queues ?? answer.items).map((/** @type {any} */ one) => ({ kind: NOUNS[page], name: path === "runs" ? `${one.workflow} ${one[name]}` : one[name], act: goTo(to([page, one[name]])) })), ...actionsOn(path, answer)]);
    }, () => undefined));
    Promise.all(reading).then(() => { if (!isGone) setRead(true); });
    return () => { isGone = true; };
  }, []);
  const id = text.trim();
  /** @type {Entry[]} */
  const all = [
    ...PAGES.filter((one) => !one.needs || may(one.needs)).map((one) => ({ kind: "Page", name: one.title, act: goTo(to(one.name)) })),
    ...views().map((one) => ({ kind: "View", name: one.name, act: goTo(one.at) })),
    ...actions,
    ...(may("jobs.bulk") ? [RETRY] : []),
    ...THEMES.map((theme) => ({ kind: "Theme", name: theme, act: () => setTheme(theme) })),
    ...named,
  ];
  const shown = match(all, text);
  // Not before all names are loaded, because one of them may match.
  if (isRead && id && !id.includes(" ") && may("jobs.read")) shown.push({ kind: "Job", name: id, act: goTo(to(["jobs", id])) });
  if (isRead && id.length > 30 && !id.includes(" ") && may("workflows.read") && !shown.some((one) => one.kind === "Run")) shown.push({ kind: "Run", name: id, act: goTo(to(["runs", id])) });
  const chosen = Math.min(at, shown.length - 1);
  const take = (/** @type {Entry | undefined} */ one) => {
    if (one?.dialog) return open(one);
    if (one) { close(); one.act?.(); }
    return undefined;
  };
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (by) { event.preventDefault(); move((chosen + by + shown.length) % (shown.length || 1)); }
  };
  const submit = (/** @type {Event} */ event) => { event.preventDefault(); take(shown[chosen]); };
  if (opened) return opened.dialog?.(close);
  return html`<${Dialog} key="palette" title="Go to" close=${close}><form role="search" onSubmit=${submit}>
    <input class="palette" value=${text} role="combobox" aria-label="Go to" aria-expanded="true" aria-controls="palette" aria-activedescendant=${chosen < 0 ? undefined : `palette-${chosen}`} aria-autocomplete="list" autofocus autoComplete="off" spellcheck=${false}
      placeholder="page, view, action, task, queue or job id" onInput=${(/** @type {any} */ e) => { set(e.target.value); move(0); }} onKeyDown=${onKey} />
    <ul id="palette" role="listbox" aria-label="Results">${shown.map((one, number) => html`<li key=${`${one.kind} ${one.name}`} id=${`palette-${number}`} role="option" aria-selected=${number === chosen} onClick=${() => take(one)}><span class="dim">${one.kind}</span> ${one.name}</li>`)}</ul>
    ${!shown.length && html`<p class="dim" role="status">${isRead ? "No match." : "Loading …"}</p>`}
  </form><//>`;
}
