// @ts-check
/** Search in the logs of job runs. */
import { useData } from "../lib/data.js";
import { Search } from "../lib/filter.js";
import { html } from "../lib/html.js";
import { LEVELS, Lines } from "../lib/log.js";
import { Code, Empty, Head, Loading, Pager } from "../lib/parts.js";
import { to } from "../lib/route.js";

export default function Logs({ query }) {
  const { text = "", level = "info", task = "", cursor = "" } = query;
  const loaded = useData("logs", { text, level, task, cursor, limit: 100 });
  return html`<${Head} of=${loaded} title="Logs" sub=${task && `Task ${task}`}>${task && html`<a href=${to("logs", { text, level })}>All tasks</a>`}<//>
    <div class="bar"><${Search} name="text" label="Text" placeholder="text in the line" maxLength="500" /></div>
    <div class="chips" role="group" aria-label="Minimum level">${LEVELS.map((name) => html`<a key=${name} href=${to("logs", { text, task, level: name })} aria-current=${name === level ? "true" : undefined}>${name}</a>`)}</div>
    <${Loading} loaded=${loaded}>${(/** @type {any} */ { items, next, is_bounded: isBounded }) => html`
      ${items.length ? html`<${Lines} lines=${items} hasJob />` : html`<${Empty} title="No matching lines"><p>Workers of stored jobs can capture logs, which are kept until their retention expires:</p><${Code} label="Command" text="taskmq worker --help" /><//>`}
      ${isBounded && html`<p class="dim">The search stopped before it examined all lines; the next page continues from there.</p>`}
      <${Pager} next=${next} />`}<//>`;
}
