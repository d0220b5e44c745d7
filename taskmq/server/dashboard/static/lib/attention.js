// @ts-check
/** The list of what needs attention, most urgent first. */
import { may } from "./api.js";
import { backlogOf, stateOf } from "./backlog.js";
import { useData } from "./data.js";
import { count, countText, span } from "./format.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { to } from "./route.js";
import { countOf, FAILED_HOUR, firing, LONG, OVERDUE } from "./summary.js";

const OLD = 300;
const MOST = 8;

/** @typedef {{icon: string, kind: string, text: string, more: string, href: string}} Item */

/** @param {{count: number, is_exact: boolean}} of */
const jobs = ({ count: many, is_exact }) => `${countText({ count: many, is_exact })} ${many === 1 ? "job" : "jobs"}`;

/** Describe a queue that needs attention.
 * @param {any} one @param {number} at when it was read @returns {Item[]} */
function itemsOf(one, at) {
  const state = stateOf(one);
  const age = one.oldest ? (at - Date.parse(one.oldest)) / 1000 : 0;
  const waiting = backlogOf(one);
  const depth = `${jobs({ ...one, count: waiting })} ${waiting === 1 ? "waits" : "wait"}`;
  const item = { icon: state?.icon ?? "queues", kind: "warn", more: age > 1 ? `${depth}, the oldest for ${span(age)}` : depth, href: to(["queues", one.queue]) };
  if (state?.word === "No workers") return [{ ...item, kind: "bad", text: `${one.queue} has no workers` }];
  if (state?.word === "Growing") return [{ ...item, text: `${one.queue} ${one.advice}` }];
  if (state?.word === "Paused") return [{ ...item, text: `${one.queue} is paused` }];
  return age > OLD ? [{ ...item, icon: "scheduled", text: `${one.queue} has an old backlog` }] : [];
}

/** Describe a part of the installation that is down. Queues without workers have items of their own.
 * @param {any} one @returns {Item[]} */
function itemsOfPart({ part, status, finding }) {
  if (status !== "down" && (status !== "partly" || part === "workers")) return [];
  const verb = part.endsWith("s") ? "are" : "is";
  return [{ icon: "system", kind: status === "down" ? "bad" : "warn", text: `${part} ${verb} ${status === "down" ? "down" : "partly down"}`, more: finding, href: to(may("system.read") ? "system" : "") }];
}

/** @param {import("./summary.js").Summary} summary @param {import("./data.js").Loaded} queues @param {import("./data.js").Loaded} health @returns {Item[]} */
function find(summary, queues, health) {
  const failed = countOf(summary, FAILED_HOUR);
  const overdue = countOf(summary, OVERDUE);
  const long = countOf(summary, LONG);
  const ofQueues = (queues.data?.queues ?? []).flatMap((/** @type {any} */ one) => itemsOf(one, queues.at));
  return [
    ...(health.data?.parts ?? []).flatMap(itemsOfPart),
    ...firing(summary).map((one) => ({ icon: "alerts", kind: "bad", text: `${one.rule} is firing`, more: [one.subject, one.severity].filter(Boolean).join(", "), href: to("alerts") })),
    ...ofQueues.filter((/** @type {Item} */ one) => one.kind === "bad"),
    ...(failed?.count ? [{ icon: "failures", kind: "bad", text: `${jobs(failed)} failed in the last hour`, more: "", href: to("jobs", { filter: FAILED_HOUR }) }] : []),
    ...(overdue?.count ? [{ icon: "scheduled", kind: "warn", text: `${jobs(overdue)} ${overdue.count === 1 ? "is" : "are"} overdue`, more: "by more than a minute", href: to("jobs", { filter: OVERDUE }) }] : []),
    ...(long?.count ? [{ icon: "running", kind: "warn", text: `${jobs(long)} ${long.count === 1 ? "has" : "have"} run for over an hour`, more: "", href: to("jobs", { filter: LONG }) }] : []),
    ...ofQueues.filter((/** @type {Item} */ one) => one.kind !== "bad"),
  ];
}

/** @param {{summary: import("./summary.js").Summary, queues: import("./data.js").Loaded}} props */
export function Attention({ summary, queues }) {
  const health = useData("health", {}, ["time"], 5000);
  const sources = { jobs: summary.counts, alerts: summary.alerts, queues, health };
  const missing = Object.entries(sources).filter(([, one]) => one.error).map(([name]) => name);
  const isLoading = Object.values(sources).some((one) => one.isLoading);
  const items = find(summary, queues, health);
  return html`<section class="card brief attention"><div class="section-head"><h2>Needs attention</h2></div>
    ${isLoading ? html`<p class="dim" role="status" data-loading>Loading …</p>`
      : items.length ? html`<ul>${items.slice(0, MOST).map((one, at) => html`<li key=${at}><span class=${`c-${one.kind}`}><${Icon} name=${one.icon} /></span><a href=${one.href}>${one.text}</a><span class="dim">${one.more}</span></li>`)}</ul>`
        : !missing.length && html`<p class="dim">Nothing needs attention.</p>`}
    ${items.length > MOST && html`<p class="dim">${count(items.length - MOST)} more. <a href=${to("queues")}>All queues</a></p>`}
    ${missing.length > 0 && html`<p class="dim">Not available: ${missing.join(", ")}.</p>`}</section>`;
}
