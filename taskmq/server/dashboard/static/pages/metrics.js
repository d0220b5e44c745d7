// @ts-check
/** Metrics over time and by task. */
import { useData } from "../lib/data.js";
import { FigurePlots, Ranges, since } from "../lib/figures.js";
import { Search } from "../lib/filter.js";
import { count, quote, span } from "../lib/format.js";
import { html } from "../lib/html.js";
import { Empty, Head, Section, Loading, Table } from "../lib/parts.js";
import { to } from "../lib/route.js";

function Totals({ range, task, queue }) {
  return html`<${Loading} loaded=${useData("rollups", { since: since(range), task, queue })}>${(/** @type {any} */ { items }) => items.length
    ? html`<${Table} label="Tasks" columns=${["Task", "Queue", ["Ended", "number"], ["Failed", "number"], ["Retried", "number"], ["Wait p50", "number"], ["Wait p95", "number"], ["Run p50", "number"], ["Run p95", "number"], ["Total run time", "number"]]}>${items.map((/** @type {any} */ one) => html`<tr key=${`${one.task} ${one.queue}`} data-row>
        <td><a href=${to("metrics", { range, task: one.task })}>${one.task}</a></td><td><a href=${to("metrics", { range, queue: one.queue })}>${one.queue}</a></td>
        <td class="number"><a href=${to("jobs", { filter: `task:${quote(one.task)}` })}>${count(one.ended)}<span class="sr"> jobs of ${one.task}</span></a></td>
        <td class="number">${count(one.failed)}${one.failed > 0 ? ` (${Math.round((one.failure_rate ?? 0) * 1000) / 10} %)` : ""}</td><td class="number">${count(one.outcomes.retried ?? 0)}</td>
        <td class="number">${span(one.wait_p50)}</td><td class="number">${span(one.wait_p95)}</td><td class="number">${span(one.run_p50)}</td><td class="number">${span(one.run_p95)}</td><td class="number">${span(one.run_total)}</td></tr>`)}<//>`
    : html`<${Empty} title="No data in this period"><p>Metrics are recorded while a scheduler runs.</p><//>`}<//>`;
}

export default function Metrics({ query }) {
  const { range = "1h", task = "", queue = "" } = query;
  const of = { range, task, queue };
  return html`<${Head} of=${{ path: "rollups", query: { since: since(range), task, queue } }} title="Metrics" sub=${[task && `task ${task}`, queue && `queue ${queue}`].filter(Boolean).join(", ")} />
    <div class="bar"><${Search} name="task" label="Task" placeholder="all tasks" />${(task || queue) && html`<a href=${to("metrics")}>Clear</a>`}<${Ranges} chosen=${range} /></div>
    <div class="two"><${FigurePlots} which=${["jobs", "rate", "wait", "run"]} ...${of} /></div>
    <${Section} title="By task and queue"><${Totals} ...${of} /><//>`;
}
