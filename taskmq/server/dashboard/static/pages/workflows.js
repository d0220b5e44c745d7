// @ts-check
/** Workflows by name. */
import { useData } from "../lib/data.js";
import { quote } from "../lib/format.js";
import { html } from "../lib/html.js";
import { Code, Empty, Hash, Head, Loading, Table, When } from "../lib/parts.js";
import { to } from "../lib/route.js";

export default function Workflows({ query: { cursor = "" } }) {
  const loaded = useData("workflows", { cursor, limit: 100 }, []);
  return html`<${Head} of=${loaded} title="Workflows" /><${Loading} loaded=${loaded}>${(/** @type {any} */ { items, next }) => html`
    ${items.length
      ? html`<${Table} label="Workflows" columns=${["Workflow", "Current version", "Stored", ""]}>${items.map((/** @type {any} */ one) => html`<tr key=${one.name} data-row>
          <td><a href=${to(["workflows", one.name])}>${one.name}</a>${one.is_shared && " (shared)"}</td><td><${Hash} of=${one.version} /></td><td><${When} at=${one.at} /></td>
          <td><a href=${to("runs", { filter: `workflow:${quote(one.name)}` })}>Runs<span class="sr"> of ${one.name}</span></a></td></tr>`)}<//>`
      : html`<${Empty} title="No workflows"><p>Store the workflow of a file:</p><${Code} label="Example" text="taskmq workflow apply nightly.yml" /><//>`}
    <div class="bar">${cursor && html`<a href=${to("workflows")}>First page</a>`}${next && html`<a href=${to("workflows", { cursor: next })}>Next page</a>`}</div>`}<//>`;
}
