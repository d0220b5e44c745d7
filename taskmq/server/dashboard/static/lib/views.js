// @ts-check
/** Views that this browser has saved: a name and an address. */
import { html, useEffect, useState } from "./html.js";
import { Confirm, Field, notify } from "./parts.js";
import { keep, kept } from "./theme.js";

/** @typedef {{name: string, at: string}} View */

const MOST = 50;
// Dashboards of several apps may be below one host.
const KEY = `views ${location.pathname}`;
/** @type {Set<() => void>} */
const watchers = new Set();

/** Those that were saved, by their names; what is no view is left out.
 * @returns {View[]} */
export function views() {
  try {
    const found = JSON.parse(kept(KEY, "[]"));
    return found.filter((/** @type {any} */ one) => typeof one?.name === "string" && typeof one.at === "string" && one.at.startsWith("#/"));
  } catch {
    return [];
  }
}

/** @param {View[]} changed */
function put(changed) {
  keep(KEY, JSON.stringify(changed));
  for (const watcher of [...watchers]) watcher();
}

/** @param {string} name */
export function removeView(name) {
  put(views().filter((one) => one.name !== name));
}

/** The views, again whenever they are others; also in other tabs. */
export function useViews() {
  const [, again] = useState(0);
  useEffect(() => {
    const watcher = () => again((/** @type {number} */ n) => n + 1);
    watchers.add(watcher);
    addEventListener("storage", watcher);
    return () => { watchers.delete(watcher); removeEventListener("storage", watcher); };
  }, []);
  return views();
}

/** Asks for the name of the present view, and saves it. */
export function SaveView({ close }) {
  const [name, set] = useState(document.title.replace(/ · taskmq$/, ""));
  const at = location.hash || "#/";
  const isKnown = views().some((one) => one.name === name.trim());
  const act = async () => {
    const others = views().filter((one) => one.name !== name.trim());
    if (others.length >= MOST) throw new Error(`This browser keeps ${MOST} views: remove one first.`);
    put([...others, { name: name.trim(), at }].sort((a, b) => a.name.localeCompare(b.name)));
    notify("The view is saved in this browser.");
  };
  return html`<${Confirm} title="Save this view" verb=${isKnown ? "Replace it" : "Save"} close=${close} act=${act}>
    <p class="dim">With its filter and everything else that its address says; in this browser. To share it, send its address.</p>
    <${Field} label="Name"><input value=${name} required pattern=${".*\\S.*"} maxLength="80" autoComplete="off" onInput=${(/** @type {any} */ e) => set(e.target.value)} /><//><//>`;
}
