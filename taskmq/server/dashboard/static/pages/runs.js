// @ts-check
/** Runs of workflows that match a filter. */
import { may } from "../lib/api.js";
import { useData } from "../lib/data.js";
import { Chips, Filter, withoutLast } from "../lib/filter.js";
import { html } from "../lib/html.js";
import { Code, Empty, Head, Loading, Pager } from "../lib/parts.js";
import { to } from "../lib/route.js";
import { RunTable } from "../lib/run_table.js";

const CHIPS = [["all", ""], ["running", "running"], ["queued", "queued"], ["held", "held"], ["succeeded", "succeeded"], ["failed", "failed"], ["cancelled", "cancelled"]];
const EXAMPLE = "chain(photos.s('summer'), resize.s().each(), total.s()).send()";

export default function Runs({ query }) {
  const { filter = "", cursor = "" } = query;
  const loaded = useData("runs", { filter, cursor, limit: 50 }, ["job"], 5000);
  return html`<${Head} of=${loaded} title="Runs">${may("jobs.submit") && may("definitions.read") && html`<a href=${to("workflows")}>Start a run</a>`}<//>
    <${Filter} page="runs" filter=${filter} placeholder="workflow:nightly* status:failed started:>-24h" />
    <${Chips} page="runs" filter=${filter} of=${CHIPS} />
    <${Loading} loaded=${loaded}>${(/** @type {any} */ page) => html`
      ${page.items.length
        ? html`<${RunTable} runs=${page.items} />`
        : filter || cursor ? html`<${Empty} title="No matching runs"><p><a href=${to("runs", { filter: withoutLast(filter) })}>Remove the last term</a> · <a href=${to("runs")}>All runs</a></p><//>`
        : html`<${Empty} title="No runs"><p>A run executes the steps of a workflow, each after its predecessors:</p><${Code} label="Example" text=${EXAMPLE} /><//>`}
      ${page.is_bounded && html`<p class="dim">The search stopped before the page was full; the next page continues from there.</p>`}
      <${Pager} next=${page.next} />`}<//>`;
}
