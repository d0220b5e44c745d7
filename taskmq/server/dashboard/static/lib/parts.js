// @ts-check
/** Shared components of all pages. */
import { ApiError, may } from "./api.js";
import { CopyCurl, copyRequest } from "./curl.js";
import { useNow } from "./data.js";
import { ago, instant } from "./format.js";
import { h, html, useEffect, useRef, useState } from "./html.js";
import { Icon } from "./icons.js";
import { tabsOf } from "./pages.js";
import { route, to } from "./route.js";

const MARKS = /** @type {any} */ ({
  // An unknown state must not find inherited properties.
  __proto__: null,
  waiting: "◌", held: "‖", scheduled: "◷", queued: "○", dispatched: "◔", running: "▶", retrying: "↻", succeeded: "✓",
  failed: "✗", ready: "◔", cancelled: "⊘", expired: "⌛", skipped: "»", upstream_failed: "⤫",
});

/** The symbol of a state.
 * @param {string} state */
export const markOf = (state) => MARKS[state] ?? "•";

/** A state as a word, an icon and a colour; `kind` is the state of a job that looks the same. */
export const State = ({ state = "", kind = state, icon = kind }) =>
  html`<span class=${`state s-${kind}`}><${Icon} name=${icon} /><span class="word">${state.replace("_", " ")}</span></span>`;

/** The state of a queue.
 * @param {{state: import("./backlog.js").QueueState | null}} props */
export const QueueWord = ({ state }) => state && html`<${State} state=${state.word} ...${state} />`;

/** The parts of one whole as a bar.
 * @param {{of: [string, number | null, string][]}} props of: name, number, colour */
export function Segments({ of }) {
  const parts = of.filter(([, number]) => number);
  const total = parts.reduce((sum, [, number]) => sum + Number(number), 0);
  let at = 0;
  // A part that exists is visible.
  const widths = parts.map(([, number]) => Math.max(2, (Number(number) / total) * 100));
  const whole = widths.reduce((sum, one) => sum + one, 0);
  const words = parts.map(([name, number]) => `${number} ${name}`).join(", ") || "none";
  return html`<svg class="segments" role="img" aria-label=${words}><title>${words}</title><rect class="rest" width="100%" height="8" rx="2" />
    ${parts.map(([name, , color], part) => { const from = at; at += (widths[part] / whole) * 100; return html`<rect key=${name} class=${`c-${color}`} x=${`${from}%`} width=${`${at - from}%`} height="8" />`; })}</svg>`;
}

/** A small trend of values as a line over an area; null is a gap.
 * @param {{of: (number | null)[], label: string}} props */
export function Spark({ of, label }) {
  const most = Math.max(1, ...of.map(Number));
  const points = of.map((one, at) => `${((at / Math.max(1, of.length - 1)) * 96).toFixed(1)} ${(19 - (18 * (one ?? 0)) / most).toFixed(1)}`).join("L");
  return html`<svg class="trend" role="img" aria-label=${label} viewBox="0 0 96 20"><title>${label}</title>${of.length > 0 && html`<path class="wash" d=${`M0 20L${points}L96 20Z`} /><path class="edge" d=${`M${points}`} />`}</svg>`;
}

/** An id. Of a UUID and of a schedule's id only the end is visible, but all of it is copied, linked and read aloud. */
export const Id = ({ id }) => /^(taskmq:\w+:)?[\da-f-]{36}$/.test(id) ? html`<span class="id" title=${id}><bdi dir="ltr">${id}</bdi></span>` : id;

/** The start of a hash. */
export const Hash = ({ of }) => html`<code title=${of}>${of.slice(0, 12)}</code>`;

/** A time as an age, with the exact time as a tooltip. */
export function When({ at, exact = false }) {
  const now = useNow(at ? 5000 : 3_600_000);
  if (!at) return html`<span class="dim">–</span>`;
  return html`<time dateTime=${at} title=${`${instant(at)} here · ${instant(at, "UTC")} UTC`}>${exact ? instant(at) : ago(at, now)}</time>`;
}

/** The progress a task reported. */
export function TaskProgress({ done, total }) {
  const words = total === null ? `${done}` : `${done} of ${total}`;
  return html`<span class="used">${total > 0 && html`<progress max=${total} value=${Math.max(0, Math.min(done, total))} aria-label=${`Done: ${words}`}></progress> `}${words}</span>`;
}

/** Renders loaded data with `children`, or the error; `title` is shown until then. */
export function Loading({ loaded, children, title = "" }) {
  const { data, error, isLoading, at } = loaded;
  if (isLoading) return html`<p class="note" role="status" data-loading>Loading …</p>`;
  const failure = error && html`<${Failure} error=${error} at=${data === null ? 0 : at} retry=${loaded.reload} />`;
  return html`${title && data === null && html`<${Head} title=${title} />`}${failure}${data !== null && children(data)}`;
}

/** An error message with a retry button. */
export function Failure({ error, at = 0, retry = null }) {
  const problem = error instanceof ApiError ? error.problem : null;
  return html`<div class="failure" role="alert">
    <strong>${at ? `Outdated, from ${instant(new Date(at).toISOString())}. ` : ""}${error.message}</strong>
    ${problem?.column ? html`<p>Column ${problem.column} of the filter.</p>` : null}
    ${problem?.errors?.map((one) => html`<p key=${one.field}><code>${one.field}</code>: ${one.message} ${one.suggestion ?? ""}</p>`)}
    ${problem?.request_id && html`<p class="dim">Request ${problem.request_id}</p>`}
    ${retry && html`<button type="button" onClick=${retry}>Try again</button>`}
  </div>`;
}

/** An empty state. */
export const Empty = ({ title, children = null }) => html`<div class="empty"><h2>${title}</h2>${children}</div>`;

/** The heading of a page, and its tabs.
 * @param {{title: string, id?: string, children?: unknown, sub?: unknown, of?: {path: string, query: Record<string, unknown>} | null}} props id: that of the one object on the page; of: its data, whose request can be copied */
export function Head({ title, id = "", children = null, sub = null, of = null }) {
  useEffect(() => { document.title = `${[title, id].filter(Boolean).join(" ")} · taskmq`; }, [title, id]);
  const [name = "", ...rest] = route().path;
  const tabs = rest.length ? [] : tabsOf(name, may);
  return html`<header class="head"><div><h1 tabIndex="-1">${title}${id && html` <${Id} id=${id} />`}</h1>${id && html` <${CopyButton} text=${id} label="Copy the id" />`}${sub && html`<p>${sub}</p>`}</div><div class="actions">${of && html`<${CopyCurl} list=${of} />`}${children}</div></header>
    ${tabs.length > 1 && html`<nav class="tabs" aria-label="Tabs">${tabs.map((one) => html`<a key=${one.name} href=${to(one.name)} aria-current=${one.name === name ? "page" : undefined}>${one.title}</a>`)}</nav>`}`;
}

/** A button, disabled while its action runs. Errors appear as notices. With Alt, a click copies the request instead. */
export function Action({ act, children, mark = "", kind = "", title = undefined, disabled = false }) {
  const [busy, set] = useState(false);
  const run = async () => {
    set(true);
    try {
      await act();
    } catch (error) {
      notify(/** @type {Error} */ (error).message, true);
    } finally {
      set(false);
    }
  };
  return html`<button type="button" class=${kind} title=${title} data-key=${mark} disabled=${busy || disabled} onClick=${(/** @type {MouseEvent} */ event) => (event.altKey ? copyRequest(act) : run())}>${children}</button>`;
}

/** @type {(notice: {text: string, isError: boolean}) => void} */
let tell = () => undefined;

/** Show a notice for a few seconds.
 * @param {string} text */
export function notify(text, isError = false) {
  tell({ text, isError });
}

export function Notices() {
  const [notices, set] = useState(/** @type {{text: string, isError: boolean, id: number}[]} */ ([]));
  useEffect(() => {
    tell = (notice) => {
      const id = Math.random();
      set((/** @type {any[]} */ before) => [...before.slice(-2), { ...notice, id }]);
      setTimeout(() => set((/** @type {any[]} */ before) => before.filter((one) => one.id !== id)), notice.isError ? 15_000 : 6000);
    };
  }, []);
  return html`<div class="notices" role="status" aria-live="polite">
    ${notices.map((one) => html`<p key=${one.id} class=${one.isError ? "failure" : "done"}>${one.text}</p>`)}
  </div>`;
}

/** A modal dialog. Escape closes it. */
export function Dialog({ title, close, children }) {
  const at = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => { at.current?.showModal(); }, []);
  return html`<dialog ref=${at} aria-label=${title} onClose=${close}>
    <div class="dialog-head"><h2>${title}</h2><button type="button" class="plain" aria-label="Close" onClick=${close}>×</button></div>
    ${children}
  </dialog>`;
}

/**
 * A confirmation dialog with an optional note. If `typed` is set, the user must type it to confirm.
 * @param {{title: string, close: () => void, act: (note: string) => Promise<void>, verb: string, typed?: string,
 *   note?: boolean, children?: unknown}} props
 */
export function Confirm({ title, close, act, verb, typed = "", note = false, children = null }) {
  const [said, say] = useState("");
  const [why, setWhy] = useState("");
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const [busy, setBusy] = useState(false);
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await act(why);
      close();
    } catch (failure) {
      setError(/** @type {Error} */ (failure));
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${title} close=${close}><form onSubmit=${submit}>
    ${children}
    ${note && html`<${TextField} label="Note for the history" value=${why} maxLength="500" set=${setWhy} />`}
    ${typed && html`<${TextField} label=${`Type ${typed} to confirm`} value=${said} autoComplete="off" set=${say} />`}
    ${error && html`<${Failure} error=${error} />`}
    <div class="dialog-foot"><${CopyCurl} act=${() => act(why)} /><span class="grow"></span><button type="button" onClick=${close}>Keep</button>
      <button type="submit" class="primary" disabled=${busy || (typed !== "" && said !== typed)}>${verb}</button></div>
  </form><//>`;
}

let hints = 0;

/** A control with its label; the hint describes it, and is no part of its name. */
export function Field({ label, children, hint = "" }) {
  const [id] = useState(() => `hint-${(hints += 1)}`);
  return html`<div class="field"><label><span>${label}</span>${hint ? h(children.type, { ...children.props, "aria-describedby": id }) : children}</label>${hint && html`<small id=${id} class="dim">${hint}</small>`}</div>`;
}

/** An input with its label; `set` gets the text. Other properties are those of the input. */
export const TextField = ({ label, hint = "", value, set, ...more }) => html`<${Field} label=${label} hint=${hint}><input ...${more} value=${value} onInput=${(/** @type {any} */ e) => set(e.target.value)} /><//>`;

/** A choice. Other properties are those of the element.
 * @param {{of: (string | string[])[], value: unknown, set: (text: string) => void, [more: string]: unknown}} props of: values, or values with their texts */
export const Select = ({ of, value, set, ...more }) => html`<select ...${more} value=${value} onChange=${(/** @type {any} */ e) => set(e.target.value)}>${of.map((one) => { const [key, text = key] = [one].flat(); return html`<option key=${key} value=${key}>${text}</option>`; })}</select>`;

/** A choice between yes and no. */
export const Check = ({ value, set, children }) => html`<label class="check"><input type="checkbox" checked=${value} onChange=${(/** @type {any} */ e) => set(e.target.checked)} /> ${children}</label>`;

/** A list of names and values, without empty values. */
export const Facts = ({ of }) => html`<dl class="facts">
  ${of.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}
</dl>`;

/** Preformatted text, for arguments, results and tracebacks. */
export const Code = ({ text, label }) => html`<pre tabIndex="0" role="group" aria-label=${label}><code>${text}</code></pre>`;

/** Show all of a cell that is cut, as its tooltip.
 * @param {any} event */
function showWhole(event) {
  const cell = event.target.closest("td");
  if (cell && !cell.title && cell.scrollWidth > cell.clientWidth) cell.title = cell.textContent.trim();
}

/** Label the cells with their column: small windows show a row as lines.
 * @param {string[]} titles */
const labelCells = (titles) => (/** @type {HTMLElement | null} */ table) => titles.forEach((title, at) => table?.style.setProperty(`--c${at + 1}`, JSON.stringify(title)));

/**
 * A table that scrolls horizontally if needed; without rows, the text `none`.
 * @param {{label: string, columns: any[], none?: string, children?: unknown}} props columns: a title, or a title and a class.
 */
export const Table = ({ label, columns, none = "None.", children }) => Array.isArray(children) && !children.length ? html`<p class="dim">${none}</p>` : html`<div class="scroll" tabIndex="0" role="group" aria-label=${label} onMouseOver=${showWhole}>
  <table ref=${labelCells(columns.map((column) => [column].flat()[0]).map((title) => (typeof title === "string" ? title : "")))}><thead><tr>${columns.map((column, at) => {
    const [title, kind] = Array.isArray(column) ? column : [column, undefined];
    return html`<th key=${at} scope="col" class=${kind}>${title || html`<span class="sr">Actions</span>`}</th>`;
  })}</tr></thead><tbody>${children}</tbody></table>
</div>`;

/** Links to the first and the next page of a list; the parameter `name` of the address is the place in it. */
export function Pager({ next, name = "cursor" }) {
  const { path, query } = route();
  return html`<div class="bar">${query[name] && html`<a href=${to(path, { ...query, [name]: "" })}>First page</a>`}${next && html`<a href=${to(path, { ...query, [name]: next })}>Next page</a>`}</div>`;
}

/** A titled section of a page. */
export const Section = ({ title, children, actions = null, kind = "" }) =>
  html`<section class=${`card ${kind}`}><div class="section-head"><h2>${title}</h2>${actions}</div>${children}</section>`;

/** A tile with a number, its trend, and a note on it. */
export const Tile = ({ label, value, note = /** @type {any} */ (""), href = undefined, kind = "", trend = null }) => {
  const inside = html`<span>${label}</span><span class="figure">${value}${trend}</span>${note && html`<span class="dim">${note}</span>`}`;
  return href ? html`<a class=${`tile ${kind}`} href=${href}>${inside}</a>` : html`<div class=${`tile ${kind}`}>${inside}</div>`;
};

/** A small button that copies a text.
 * @param {{text: string, label: string}} props */
export const CopyButton = ({ text, label }) => html`<button type="button" class="plain copy" aria-label=${label} title=${label} onClick=${() => copy(text)}><${Icon} name="copy" /></button>`;

/** @param {string} text */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    notify("Copied.");
  } catch {
    notify("This browser only allows copying over HTTPS and on localhost.", true);
  }
}
