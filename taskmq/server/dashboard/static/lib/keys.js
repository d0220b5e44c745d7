// @ts-check
/** Keyboard shortcuts. Users of speech input can turn single letters off. */
import { to } from "./route.js";
import { refresh } from "./live.js";
import { copy, notify } from "./parts.js";
import { readSetting } from "./theme.js";

/** @type {Record<string, [string, string]>} key after `g`: page, name */
export const PLACES = {
  o: ["", "Overview"], j: ["jobs", "Jobs"], b: ["bulk", "Bulk operations"], t: ["tasks", "Tasks"], q: ["queues", "Queues"], w: ["workers", "Workers"],
  n: ["nodes", "Nodes"], p: ["pools", "Pools"],
  s: ["schedules", "Schedules"], f: ["runs", "Runs"], e: ["dead-letters", "Dead letters"], a: ["alerts", "Alerts"],
  l: ["logs", "Logs"], m: ["metrics", "Metrics"], u: ["audit", "Audit"], y: ["system", "System"],
};

/** @type {[string, string][]} */
export const KEYS = [
  ["?", "show keyboard shortcuts"], ["Ctrl K", "go to a page, task or job, or act"], ["/", "focus the filter"], ["g, then a letter", "go to a page"], ["j, k", "next, previous row"],
  ["x", "select the row"], ["Enter", "open the row"], ["r", "retry"], ["c", "cancel"], ["h", "hold or release"],
  ["p", "pause or resume"], [".", "refresh"], ["y", "copy the link"], ["Alt and a click", "copy the request of a button"], ["Esc", "close"],
];

let isAfterG = false;
let endOfG = 0;

/** Start listening for keys. Returns a function that stops it.
 * @param {() => void} showSheet @param {() => void} openPalette */
export function startKeys(showSheet, openPalette) {
  /** @param {KeyboardEvent} event */
  const onKey = (event) => {
    if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      return document.querySelector("dialog[open]") ? undefined : openPalette();
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const target = /** @type {HTMLElement} */ (event.target);
    const writes = target.matches("input:not([type=checkbox]), textarea, select") || target.isContentEditable;
    if (event.key === "Escape" && writes) return target.blur();
    if (writes || document.querySelector("dialog[open]") || readSetting("keys", "on") === "off") return undefined;
    if (isAfterG) {
      isAfterG = false;
      const place = PLACES[event.key];
      if (place) { event.preventDefault(); location.hash = to(place[0]); }
      return undefined;
    }
    return press(event, showSheet);
  };
  addEventListener("keydown", onKey);
  return () => removeEventListener("keydown", onKey);
}

/** @param {KeyboardEvent} event @param {() => void} showSheet */
function press(event, showSheet) {
  switch (event.key) {
    case "g":
      isAfterG = true;
      // The timer of an earlier g would end this one too early.
      clearTimeout(endOfG);
      endOfG = window.setTimeout(() => { isAfterG = false; }, 1500);
      return undefined;
    case "?": event.preventDefault(); return showSheet();
    case "/": event.preventDefault(); return /** @type {HTMLElement | null} */ (document.querySelector("[data-filter]"))?.focus();
    case "j": return move(1);
    case "k": return move(-1);
    case "x": return /** @type {HTMLElement | null} */ (document.activeElement?.closest("[data-row]")?.querySelector("input[type=checkbox]"))?.click();
    case ".": refresh(); return notify("Refreshed.");
    case "y": return void copy(location.href);
    case "r": case "c": case "h": case "p": {
      const row = document.activeElement?.closest("[data-row]") ?? document;
      return /** @type {HTMLElement | null} */ (row.querySelector(`[data-key="${event.key}"]:not(:disabled)`))?.click();
    }
    default: return undefined;
  }
}

/** @param {number} by */
function move(by) {
  const rows = [...document.querySelectorAll("[data-row]")];
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[Math.max(0, Math.min(rows.length - 1, at + by))];
  /** @type {HTMLElement | null | undefined} */ (next?.querySelector("a"))?.focus();
}
