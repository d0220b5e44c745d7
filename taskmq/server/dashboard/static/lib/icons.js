// @ts-check
/** Icons of pages and states, drawn on a grid of 16 by 16. */
import { html } from "./html.js";

const WORKFLOW = "M4 4h.01 M12 4h.01 M8 12h.01 M5.5 4h5 M4.8 5.5l2.4 5 M11.2 5.5l-2.4 5 M2.5 4a1.5 1.5 0 1 0 3 0a1.5 1.5 0 1 0-3 0z M10.5 4a1.5 1.5 0 1 0 3 0a1.5 1.5 0 1 0-3 0z M6.5 12a1.5 1.5 0 1 0 3 0a1.5 1.5 0 1 0-3 0z";
const RING = "M8 2a6 6 0 1 0 0 12a6 6 0 1 0 0-12z";

/** @type {Record<string, string>} */
const PATHS = {
  overview: "M2.5 2.5h4.5v5h-4.5z M9 2.5h4.5v3h-4.5z M9 7.5h4.5v6h-4.5z M2.5 9.5h4.5v4h-4.5z",
  jobs: "M2.5 4h11 M2.5 8h11 M2.5 12h7", tasks: "M5.5 4.5L2.5 8l3 3.5 M10.5 4.5l3 3.5l-3 3.5", bulk: "M2.5 4h7 M2.5 8h7 M2.5 12h7 M11.5 5l1.5 1.5l-1.5 1.5",
  runs: WORKFLOW, workflows: WORKFLOW,
  schedules: "M2.5 3.5h11v10h-11z M2.5 6.5h11 M5.5 2v2.5 M10.5 2v2.5 M8 8.5v2l1.5 1", failures: "M8 2.5l6 10.5h-12z M8 6.5v3 M8 11.3v.01", "dead-letters": "M2.5 4h11v8.5h-11z M2.5 4.5l5.5 4.5l5.5-4.5",
  queues: "M2.5 3h11v3h-11z M2.5 9h8v4h-8z", workers: "M4.5 4.5h7v7h-7z M6.5 2v2.5 M9.5 2v2.5 M6.5 11.5v2.5 M9.5 11.5v2.5 M2 6.5h2.5 M2 9.5h2.5 M11.5 6.5h2.5 M11.5 9.5h2.5",
  nodes: "M2.5 3h11v4h-11z M2.5 9h11v4h-11z M5 5h.01 M5 11h.01", pools: `${RING} M8 2v6l4.5 4`, quotas: "M2.5 12a5.5 5.5 0 1 1 11 0 M8 11l3-3.5",
  metrics: "M2.5 2.5v11h11 M5 10l2.5-3l2 1.5l3.5-4.5", logs: "M2.5 4h1.5 M6.5 4h7 M2.5 8h1.5 M6.5 8h7 M2.5 12h1.5 M6.5 12h5", alerts: "M4 11V7a4 4 0 0 1 8 0v4l1 1.5h-10z M6.8 14h2.4",
  audit: "M8 2l5 1.8v4.2c0 3-2 5-5 6c-3-1-5-3-5-6V3.8z M5.8 8l1.6 1.6l3-3.2", system: "M2.5 8h2.5l1.5-4l3 8l1.5-4h2.5", users: "M5.2 5.5a2.8 2.8 0 1 0 5.6 0a2.8 2.8 0 1 0-5.6 0z M2.5 13.5a5.5 4.5 0 0 1 11 0",
  passed: "M3.5 8.5l3 3l6-7", pending: "M4.5 8h7",
  copy: "M5.5 5.5h8v8h-8z M3 10.5h-.5v-8h8v.5", search: "M2.5 7a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z M10.3 10.3l3.2 3.2", down: "M3.5 6l4.5 4.5l4.5-4.5",
  running: `${RING} M8 5.8v4.4 M5.8 8h4.4`, queued: RING, ready: `${RING} M5.5 8h5 M8.7 6l2 2l-2 2`, dispatched: `${RING} M5.5 8h5 M8.7 6l2 2l-2 2`, scheduled: `${RING} M8 4.8v3.2l2.2 1.4`,
  waiting: "M8 2h.01 M12.2 3.8h.01 M14 8h.01 M12.2 12.2h.01 M8 14h.01 M3.8 12.2h.01 M2 8h.01 M3.8 3.8h.01 M6 8h4", held: `${RING} M6.5 6v4 M9.5 6v4`, retrying: "M13 8a5 5 0 1 1-1.5-3.6 M13 2.5v3h-3",
  succeeded: `${RING} M5.5 8.2l1.8 1.8l3.3-3.8`, failed: `${RING} M6 6l4 4 M10 6l-4 4`, cancelled: `${RING} M4 12l8-8`, skipped: "M3.5 4l4 4l-4 4 M8.5 4l4 4l-4 4",
  expired: "M4 2.5h8 M4 13.5h8 M4.8 2.5c0 5 6.4 6 6.4 11 M11.2 2.5c0 5-6.4 6-6.4 11", upstream_failed: `${RING} M8 11V5.5 M5.8 7.5L8 5.2l2.2 2.3`,
};

/** @param {{name: string, isBare?: boolean}} props isBare: whether what a ring encloses is drawn alone, twice as large */
export function Icon({ name, isBare = false }) {
  const path = Object.hasOwn(PATHS, name) ? PATHS[name] : RING;
  const isInside = isBare && path.startsWith(`${RING} `);
  return html`<svg class="icon" viewBox=${isInside ? "4 4 8 8" : "0 0 16 16"} aria-hidden="true"><path d=${isInside ? path.slice(RING.length) : path} /></svg>`;
}

/** The mark of taskmq, in the colour of the theme. */
export const Logo = () => html`<svg viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="7" fill="currentColor" /><path class="logo" d="M7 10h18M7 16h12M7 22h7M22 22h3" fill="none" stroke-width="3" stroke-linecap="round" /></svg>`;
