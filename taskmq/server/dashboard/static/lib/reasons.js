// @ts-check
/** The checks that a waiting job has to pass, with the reasons why it does not pass. */
import { may, part } from "./api.js";
import { useData } from "./data.js";
import { count } from "./format.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { Section, When } from "./parts.js";
import { to } from "./route.js";

/** Labels of the kinds. */
const KINDS = /** @type {any} */ ({
  // An unknown kind must not find inherited properties.
  __proto__: null,
  held: "Hold", dependency: "Dependencies", time: "Time", paused: "Pause", scheduler: "Scheduler", broker: "Broker", workers: "Workers", placement: "Nodes", limit: "Limit", cap: "Pool share",
  quota: "Quota", pool: "Pool share", turn: "Turn", message: "Message", running: "Run", interruption: "Interruption", cancellation: "Cancellation", error: "Last attempt", unknown: "Unknown",
});

/** Labels of the checks, and icons of their states. */
const CHECKS = /** @type {any} */ ({ __proto__: null, hold: "Hold", dependencies: "Dependencies", time: "Time", scheduler: "Scheduler", pause: "Pause", workers: "Broker and workers", turn: "Pool share", limit: "Limit of the task", quota: "Quota", nodes: "Nodes", slot: "Worker slot" });
const SIGNS = /** @type {any} */ ({ __proto__: null, passed: "passed", blocking: "expired", pending: "pending" });

/** @typedef {{kind: string, text: string, subject: string}} Reason */

/** Pages of the subjects by kind: page, permission, label. */
const PAGES = /** @type {any} */ ({
  __proto__: null,
  dependency: ["jobs", "jobs.read", "Job"], paused: ["queues", "queues.read", "Queue"], workers: ["queues", "queues.read", "Queue"], turn: ["queues", "queues.read", "Queue"], message: ["queues", "queues.read", "Queue"],
  placement: ["nodes", "nodes.read", "Nodes"], cap: ["pools", "pools.read", "Pool"], pool: ["pools", "pools.read", "Pool"], quota: ["quotas", "pools.read", "Quotas"],
});

/** @param {{of: Reason}} props */
function Source({ of: { kind, subject } }) {
  const [page, needs, label] = PAGES[kind] ?? [];
  if (!page || !may(needs)) return null;
  return html` <a href=${to([page, page === "quotas" ? "" : subject])}>${page === "quotas" || !subject ? label : `${label} ${subject}`}</a>`;
}

/** @param {{id: string, runs: boolean}} props */
export function Reasons({ id, runs }) {
  const { data } = useData(`jobs/${part(id)}/explain`, { });
  if (!data?.items.length) return null;
  const { answer, checks = [], alternatives = [] } = data;
  const isChecked = (/** @type {Reason} */ one) => checks.some((/** @type {any} */ check) => check.kinds.includes(one.kind));
  const line = (/** @type {Reason} */ one) => html`<span key=${one.text}>${one.text !== answer && one.text}<${Source} of=${one} /></span>`;
  return html`<${Section} title=${runs ? "What is this job doing?" : "Why is this job waiting?"}><p class="sentence">${answer}</p><ol class="gates">
    ${checks.map((/** @type {any} */ { name, state, text, kinds, since }) => html`<li key=${name} class=${`is-${state}`} aria-current=${state === "blocking" ? "step" : undefined}><${Icon} name=${SIGNS[state]} /><strong>${CHECKS[name]}<span class="sr">: ${state}</span></strong><div>${text}${data.items.filter((/** @type {Reason} */ one) => kinds.includes(one.kind)).map(line)}</div>${since && html`<${When} at=${since} />`}</li>`)}
    ${data.items.filter((/** @type {Reason} */ one) => !isChecked(one) && one.text !== answer).map((/** @type {Reason} */ one) => html`<li key=${one.text}><${Icon} name="queued" /><strong>${KINDS[one.kind] ?? one.kind}</strong><div>${line(one)}</div></li>`)}</ol><${Start} of=${data.start} help=${alternatives} /><//>`;
}

/** The position of a ready job, its expected start, and what would help. @param {{of: any, help: {text: string}[]}} props */
const Start = ({ of, help }) => (of || help.length > 0) && html`<dl class="start">${of && html`<div><dt>Position in the queue</dt><dd>${count(of.position)}</dd></div><div><dt>Expected start</dt><dd><${When} at=${of.likely} /></dd></div><div><dt>Range</dt><dd><${When} at=${of.earliest} exact /> to <${When} at=${of.latest} exact /></dd></div>`}${help.length > 0 && html`<div><dt>What would help</dt>${help.map(({ text }) => html`<dd key=${text} class="sentence">${text}</dd>`)}</div>`}</dl>`;
