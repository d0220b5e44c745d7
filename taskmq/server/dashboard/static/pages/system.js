// @ts-check
/** Health of servers, schedulers, partitions and clocks, and the findings of the doctor. */
import { useData } from "../lib/data.js";
import { size, span } from "../lib/format.js";
import { html } from "../lib/html.js";
import { Icon } from "../lib/icons.js";
import { CopyButton, Head, Loading, Section, Table, When } from "../lib/parts.js";

const WORDS = /** @type {Record<string, [string, string]>} */ ({
  works: ["Works", "succeeded"], partly: ["Partly down", "retrying"], down: ["Down", "failed"], unknown: ["Unknown", "retrying"], absent: ["Not configured", "skipped"],
  problem: ["Problem", "failed"], warning: ["Warning", "retrying"],
});

/** Return the command in a remedy, if it has one. @param {string} text */
const commandOf = (text) => /`(taskmq [^`]*)`/.exec(text)?.[1] ?? /^taskmq [^,]*/.exec(text)?.[0];

const Mark = ({ of }) => html`<span class=${`state s-${WORDS[of]?.[1]}`}><${Icon} name=${WORDS[of]?.[1] ?? ""} />${WORDS[of]?.[0] ?? of}</span>`;

const sideOf = (/** @type {number} */ offset) => (Math.abs(offset) < 0.001 ? "0 ms" : `${span(Math.abs(offset))} ${offset > 0 ? "ahead" : "behind"}`);

/** One cell for each part, and one for the clocks. @param {{data: any}} props */
function Strip({ data: { parts, clocks } }) {
  const isWrong = clocks.some((/** @type {any} */ one) => one.is_wrong);
  const worst = Math.max(0, ...clocks.map((/** @type {any} */ one) => Math.abs(one.offset)));
  const last = { part: "clocks", status: isWrong ? "problem" : clocks.length ? "works" : "unknown", finding: clocks.length ? `up to ${span(worst)} from this server's` : "none compared" };
  return html`<div class="tiles" role="list" aria-label="Health">${[...parts, last].map((one) => html`<div key=${one.part} role="listitem" class="tile"><b>${one.part}</b><span><${Mark} of=${one.status} /></span>
    ${one.since && html`<span>since <${When} at=${one.since} /></span>`}<span>${one.finding}</span>${one.since && one.status !== "works" && one.status !== "absent" && html`<span>Without it: ${one.without}</span>`}
    <span class="dim">${[one.address, one.seconds && span(one.seconds), one.size && size(one.size)].filter(Boolean).join(", ")}</span></div>`)}</div>`;
}

const Schedulers = ({ data }) => html`<${Section} title="Schedulers">${data.schedulers.length
  ? html`<${Table} label="Schedulers" columns=${["Scheduler", ["Host", "p4"], ["Version", "p3"], "Started", "Partitions"]}>${data.schedulers.map((/** @type {any} */ one) => html`<tr key=${one.name} data-row>
    <td>${one.name}</td><td class="p4">${one.host}</td><td class="p3">${one.version}</td><td><${When} at=${one.started} /></td><td>${one.partitions.join(", ") || "none"}</td></tr>`)}<//>`
  : html`<p class="dim">No scheduler runs. Start one with <code>taskmq scheduler MODULE:APP</code>.</p>`}<//>`;

const Versions = ({ versions }) => html`<${Section} title="Versions"><${Table} label="Versions" columns=${["Of", "App version", "taskmq", ["Processes", "number"]]}>${versions.map((/** @type {any} */ one) => html`<tr key=${`${one.kind} ${one.version} ${one.app_version}`} data-row>
  <td>${one.kind}</td><td>${one.app_version || "–"}</td><td>${one.version}</td><td class="number">${one.processes}</td></tr>`)}<//><//>`;

const Partitions = ({ partitions }) => html`<${Section} title="Partitions"><${Table} label="Partitions" columns=${["Partition", "Held by", ["Late by", "number"], ["Jobs a second", "number"]]}>${partitions.map((/** @type {any} */ one) => html`<tr key=${one.partition} data-row>
    <td>${one.partition}</td><td>${one.holder ?? html`<span class="c-bad">no scheduler</span>`}</td><td class="number">${one.late < 1 ? "–" : span(one.late)}</td><td class="number">${one.rate ?? "–"}</td></tr>`)}<//><//>`;

const Clocks = ({ clocks }) => html`<${Section} title="Clocks" actions=${html`<span class="dim">compared with this server</span>`}><${Table} label="Clocks" columns=${["Of", "Name", ["Difference", "number"], ""]}>${clocks.map((/** @type {any} */ one, /** @type {number} */ at) => html`<tr key=${at} data-row>
  <td>${one.kind}</td><td>${one.of}</td><td class="number">${sideOf(one.offset)}</td><td>${one.is_wrong && html`<span class="c-bad">Wrong</span>`}</td></tr>`)}<//><//>`;

const Findings = ({ findings }) => html`<${Section} title="Findings"><${Table} none="No problems." label="Findings" columns=${["Level", "About", "Finding", "Fix", ""]}>${findings.map((/** @type {any} */ one, /** @type {number} */ at) => html`<tr key=${at} data-row>
    <td><${Mark} of=${one.level} /></td><td>${one.about}</td><td class="wide" title=${one.finding}>${one.finding}</td><td class="wide" title=${one.remedy}>${one.remedy}</td><td>${commandOf(one.remedy) && html`<${CopyButton} text=${commandOf(one.remedy)} label=${`Copy ${commandOf(one.remedy)}`} />`}</td></tr>`)}<//><//>`;

export default function System() {
  const loaded = useData("health/system", { max_age: 30 }, ["time"], 5000);
  return html`<${Head} of=${loaded} title="System"><button type="button" onClick=${loaded.reload}>Run all checks</button><//><${Loading} loaded=${loaded}>${(/** @type {any} */ data) => html`
    <${Strip} data=${data} /><${Findings} findings=${data.findings} />
    <div class="two"><div><${Schedulers} data=${data} /><${Versions} versions=${data.versions} />${data.clocks.length > 0 && html`<${Clocks} clocks=${data.clocks} />`}</div>${data.partitions.length > 0 && html`<${Partitions} partitions=${data.partitions} />`}</div>`}<//>`;
}
