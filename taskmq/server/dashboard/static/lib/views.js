// @ts-check
/** Views saved in this browser: a name and an address. */
import { html, useEffect, useState } from "./html.js";
import { Confirm, notify, TextField } from "./parts.js";
import { route } from "./route.js";
import { saveSetting, readSetting } from "./theme.js";

/** @typedef {{name: string, at: string}} View */

const MOST = 50;
// Dashboards of several apps may share a host.
const KEY = `views ${location.pathname}`;
/** @type {Set<() => void>} */
const watchers = new Set();

/** Return the saved views ordered by name, without invalid entries.
 * @returns {View[]} */
export function views() {
  try {
    const found = JSON.parse(readSetting(KEY, "[]"));
    return found.filter((/** @type {any} */ one) => typeof one?.name === "string" && typeof one.at === "string" && one.at.startsWith("#/"));
  } catch {
    return [];
  }
}

/** Return the name of the page that a view shows.
 * @param {View} view */
export const pageOf = (view) => route(view.at).path[0] ?? "";

/** @param {View[]} changed */
function put(changed) {
  saveSetting(KEY, JSON.stringify(changed));
  for (const watcher of [...watchers]) watcher();
}

/** @param {string} name */
export function removeView(name) {
  put(views().filter((one) => one.name !== name));
}

/** Use the saved views, updated on changes in any tab. */
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

/** Dialog that names and saves the current view. */
export function SaveView({ close }) {
  const [name, set] = useState(document.title.replace(/ · taskmq$/, ""));
  const at = location.hash || "#/";
  const isKnown = views().some((one) => one.name === name.trim());
  const act = async () => {
    const others = views().filter((one) => one.name !== name.trim());
    if (others.length >= MOST) throw new Error(`You can save ${MOST} views in this browser: remove one first.`);
    put([...others, { name: name.trim(), at }].sort((a, b) => a.name.localeCompare(b.name)));
    notify("View saved in this browser.");
  };
  return html`<${Confirm} title="Save this view" verb=${isKnown ? "Replace" : "Save"} close=${close} act=${act}>
    <p class="dim">Saves the filter and all other settings of this page in this browser. To share the view, send its address.</p>
    <${TextField} label="Name" value=${name} required pattern=${".*\\S.*"} maxLength="80" autoComplete="off" set=${set} /><//>`;
}
